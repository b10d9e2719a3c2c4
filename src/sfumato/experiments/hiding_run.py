"""One run of a comparison of hiders: hide once with a seed, and store every measure of what came out; lab side.

What judges tell that are trained on the real images is the same for all methods, so that it is a run of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, SfumatoError
from sfumato.experiments.cell import MADE, Outcome, measured, sentence
from sfumato.experiments.hiding_format import Choice
from sfumato.files import written_whole
from sfumato.judging.attribute_judges import find_judge
from sfumato.judging.attribute_leak import Pairs, baseline_of, leak_of
from sfumato.judging.leak import from_the_front, pairs_of
from sfumato.lab.folder import Lab
from sfumato.lab.provenance import PARTS, Provenance, read_provenance
from sfumato.lab.store import Store, Stored
from sfumato.making.hide import HidingJob, hide_attribute, real_side
from sfumato.progress import heard_by
from sfumato.release import read_hidden
from sfumato.statistics.attribute_scores import AttributeScore
from sfumato.values import Attributed

if TYPE_CHECKING:
    from torch import Tensor

Document = dict[str, Any]
FACES = "faces.safetensors"  # some real images and what was made of them, for a picture
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Judging:
    """By which judges releases and real images are judged, and what these are trained and tested on."""

    judge: str
    seeds: int
    choices: tuple[Choice, ...]

    def named(self, choice: Choice) -> str:
        """The name under which a measure is filed."""
        front = "-front" if choice.front == "test" else ""
        return f"{self.judge}-{self.seeds}-{choice.parts}{front}"

    def wanted(self) -> list[str]:
        return [self.named(choice) for choice in self.choices]


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """Judges of real images, as an engine is handed them."""

    name: str
    inputs: Mapping[str, Any]  # what it is filed under
    job: HidingJob  # of any method
    judging: Judging

    def stored(self, store: Path) -> Stored:
        return Store(store).hiding(self.inputs)

    def finished(self, store: Path) -> bool:
        stored = self.stored(store)
        return all(stored.has(name) for name in self.judging.wanted())

    def run(self, store: Path) -> Outcome:
        return _outcome(self, store, self._fill)

    def scores(self, store: Path, choice: Choice) -> dict[str, AttributeScore] | None:
        """By attribute; None where it was not measured yet."""
        stored, name = self.stored(store), self.judging.named(choice)
        if not stored.has(name):
            return None
        known = stored.measures()[name]["value"]
        return {attribute: _score(score) for attribute, score in known.items()}

    def _fill(self, stored: Stored) -> None:
        images, came = real_side(self.job)

        def measure(choice: Choice) -> Document:
            pairs = _pairs(images.rows(came.sources), images, came, choice)
            found = baseline_of(
                pairs,
                (self.job.attribute, *(self.job.keep or ())),
                find_judge(self.judging.judge),
                seeds=tuple(range(self.judging.seeds)),
                parts=choice.parts,
            )
            return {"value": {name: asdict(score) for name, score in found.items()}, "tested": len(pairs.test)}

        _measure(stored, self.judging, measure)


@dataclass(frozen=True, slots=True)
class HidingRun:
    """A method with a seed, as an engine is handed it."""

    name: str
    inputs: Mapping[str, Any]
    job: HidingJob
    judging: Judging
    baseline: BaselineRun
    siblings: tuple[Mapping[str, Any], ...] = ()  # inputs of runs of other methods that learn from the same images

    def stored(self, store: Path) -> Stored:
        return Store(store).hiding(self.inputs)

    def finished(self, store: Path) -> bool:
        stored = self.stored(store)
        return all(stored.has(name) for name in (MADE, *self.judging.wanted()))

    def run(self, store: Path) -> Outcome:
        return _outcome(self, store, lambda stored: self._fill(stored, store))

    def _fill(self, stored: Stored, store: Path) -> None:
        if not stored.release.exists():
            with measured() as cost:
                hide_attribute(self.job, stored.release, other_labs=self._other_labs(store))
            stored.add(MADE, cost)
        elif not stored.has(MADE):  # it was stopped in between: what it took is not known
            stored.add(MADE, {"value": None})
        release = read_hidden(stored.release)
        released = release.images
        came = read_provenance(Lab.beside(stored.release).folder)
        images = _images(self.job.data, came.names, self.job.reading, came.person)
        came.check(images)
        if not (stored.folder / FACES).exists():
            _keep_faces(stored.folder / FACES, released, images, came)

        def measure(choice: Choice) -> Document:
            baseline = self.baseline.scores(store, choice)
            if baseline is None:
                raise DataError("What judges of the real images tell was not measured.", fix="run the recipe again")
            found = leak_of(
                _pairs(released, images, came, choice, release.facts.values),
                (self.job.attribute, *(self.job.keep or ())),
                find_judge(self.judging.judge),
                judge=self.judging.judge,
                seeds=tuple(range(self.judging.seeds)),
                parts=choice.parts,
                front=choice.front,
                baseline=baseline,
            )
            return {"value": asdict(found)}

        _measure(stored, self.judging, measure)

    def _other_labs(self, store: Path) -> list[Path]:
        """Where a diffusion model may lie that was trained on the same images: methods adapt copies of the same one.

        None of the same method: what that keeps under its own name may be of another seed or other settings.
        """
        stored = [Store(store).hiding(inputs) for inputs in self.siblings]
        return [lab for one in stored if (lab := Lab.beside(one.release).folder).exists()]


def read_faces(run: HidingRun, store: Path) -> tuple[Tensor, Tensor] | None:
    """Some real images and what the run made of them, uint8 (n, c, h, w) each; the same for all methods of a seed."""
    from safetensors.torch import load

    path = run.stored(store).folder / FACES
    if not path.exists():
        return None
    tensors = load(path.read_bytes())
    return tensors["real"], tensors["made"]


def _outcome(run: BaselineRun | HidingRun, store: Path, fill: Callable[[Stored], None]) -> Outcome:
    """Do what is not in the store yet; a problem is a sentence."""
    stored = run.stored(store)
    try:
        if not run.finished(store):
            with stored.lab, heard_by(stored.say):
                fill(stored)
        return Outcome(run.name, stored.digest)
    except SfumatoError as error:
        return Outcome(run.name, stored.digest, sentence(error))


def _measure(stored: Stored, judging: Judging, measure: Callable[[Choice], Document]) -> None:
    """Store each measure as soon as it is there; what stops one, such as a missing library, stops no other."""
    problems = []
    for choice in judging.choices:
        name = judging.named(choice)
        if stored.has(name):
            continue
        try:
            with measured() as cost:
                found = measure(choice)
            stored.add(name, {**found, **cost})
        except SfumatoError as error:
            problems.append(error)
    if problems:
        raise problems[0]


def _pairs(
    released: Attributed, images: Attributed, came: Provenance, choice: Choice, values: tuple[str, ...] = ()
) -> Pairs:
    pairs = pairs_of(released, images, came, tuple(choice.parts.split("+")), values=values)
    return from_the_front(pairs) if choice.front == "test" else pairs


@functools.lru_cache(maxsize=2)  # the runs of a setup have the same images
def _images(where: str, names: tuple[str, ...], reading: Reading, person: str | None) -> Attributed:
    return data.load_attributed(where, names, reading, person=person)


def _score(known: Document) -> AttributeScore:
    return AttributeScore(**{**known, "accuracies": tuple(known["accuracies"]), "constant": tuple(known["constant"])})


def _keep_faces(path: Path, released: Attributed, images: Attributed, came: Provenance) -> None:
    """Of the part g, from which no hider learns: the first images of every value of the hidden attribute in turn."""
    from safetensors.torch import save

    of_g = (came.parts[came.sources] == PARTS.index("g")).nonzero()[:, 0]
    of_g = of_g[came.sources[of_g].argsort()]
    values = images.attributes[came.attribute][came.sources[of_g]]
    turns = values.new_tensor([int((values[:at] == value).sum()) for at, value in enumerate(values)])
    shown = of_g[turns.argsort(stable=True)][:SHOWN]
    tensors = {"real": images.pixels[came.sources[shown]], "made": released.pixels[shown]}
    with written_whole(path) as unfinished:
        unfinished.write_bytes(save({name: pixels.contiguous() for name, pixels in tensors.items()}))
