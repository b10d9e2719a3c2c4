"""Select one of many classifiers: by rules that cost nothing, by one that is charged, and by a leaky one to compare.

Published tables often show the best epoch on the test set. That number is too high, and a classifier selected like
this leaks the records it was selected on. Here the default is the last step; held-out released images may choose; and
private validation records may be asked once, for all candidates together, through a ledger.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError
from sfumato.judging.reference import judged_on, reference_for
from sfumato.lab.folder import Lab, content_of
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.privacy import Budget, Ledger, NoisyChoice, PrivateImages
from sfumato.release import read_release
from sfumato.release.layout import SUMS
from sfumato.release.sums import sha256
from sfumato.statistics.panels import comparable, set_aside
from sfumato.training.student import Schedule, Student, predict, train, training_images
from sfumato.values import Images, Score, Source

LEAKY = "selected-by-test-max (leaky, for comparison)"
KEPT = 10  # one released image in so many is held out for the rule that chooses by released images


@dataclass(frozen=True, slots=True)
class Candidate:
    """A classifier at some moment of its training on the release."""

    name: str
    last: bool
    student: Student
    origin: str  # the same for the same release, schedule and seed


def select_classifier(
    folder: Path | str,
    real: str,
    *,
    epsilon: float,
    validation: str | None = None,
    archs: tuple[str, ...] = ("mlp", "small-cnn"),
    seeds: tuple[int, ...] = (0, 1),
    looks: int = 4,
    reading: Reading | None = None,
    images_seen: float | None = None,
) -> Score:
    """Train classifiers on the release, choose one by each rule, and test them; results go to the lab folder.

    The charged choice costs `epsilon` (delta 0) for the records of `validation`; without one the training records
    are asked again, and then the choice costs `epsilon` on top of the release. Data that is asked once is never
    asked again: the same call finds its old answer in the lab, and one with other candidates or data is refused.
    """
    release = read_release(Path(folder))
    reading = reading or Reading()
    reference = reference_for(release, real, reading)
    held_out = comparable(release.images, reference)
    Budget.of(epsilon, count=len(reference.train))  # an invalid epsilon is refused before the work
    training, kept = _split(training_images(release.images))
    lab = Lab.beside(release.path.absolute())
    with lab:
        read_scores(lab.folder)  # a foreign table is refused before the work
        candidates = _train(release.path, training, archs, seeds, looks, images_seen)
        chosen = charged_choice(
            candidates, lab.folder / "selection", validation or real, reading, release.images, epsilon
        )
        right = torch.stack([(predict(c.student, held_out.pixels) == held_out.labels).double() for c in candidates])
        on_kept = torch.stack([(predict(c.student, kept.pixels) == kept.labels).double().mean() for c in candidates])
        score = _score(candidates, right, int(on_kept.argmax()), chosen, epsilon, validation is not None)
        settings = {"epsilon": epsilon, "validation": validation, "archs": archs, "seeds": seeds, "looks": looks}
        entry = Entry(score, "selection", "utility", settings)
        add_scores(lab, [entry], judged_on=judged_on(reference), left_out={})
    return score


def _split(images: Images) -> tuple[Images, Images]:
    if len(images) < 2 * KEPT:
        raise DataError(
            f"Expected a release of at least {2 * KEPT} images, got {len(images)}.",
            fix="make more by `sfumato resample`",
        )
    return set_aside(images, len(images) // KEPT)


def _train(
    release: Path, training: Images, archs: Sequence[str], seeds: Sequence[int], looks: int, images_seen: float | None
) -> list[Candidate]:
    candidates: list[Candidate] = []
    for arch in archs:
        changes = {} if images_seen is None else {"images_seen": images_seen}
        schedule = Schedule.short(arch, soft=training.logits is not None, **changes)
        for seed in seeds:
            origin = origin_of(release, schedule, seed)

            def keep(done: float, student: Student, arch: str = arch, seed: int = seed, origin: str = origin) -> None:
                name = f"{arch}, seed {seed}, after {done:.0%}"
                candidates.append(Candidate(name, done == 1, _copy(student), origin))

            train(training, schedule, seed=seed, what=f"{arch}, seed {seed}", callback=keep, checkpoints=looks)
    return candidates


def _copy(student: Student) -> Student:
    return copy.deepcopy(student).eval().requires_grad_(False)


def origin_of(release: Path, schedule: Schedule, seed: int) -> str:
    """A digest of what a classifier is made from.

    Not of its weights: their last digits depend on the machine and its number of threads, and a run that is resumed
    elsewhere must find the answer that was paid for. The digest depends on the release alone, so it reveals nothing
    about the records that choose.
    """
    made_from = [sha256(release / SUMS), asdict(schedule), seed]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def charged_choice(
    candidates: Sequence[Candidate], folder: Path, where: str, reading: Reading, released: Images, epsilon: float
) -> int:
    """The candidate that private records choose, charged in a ledger of its own before they are read."""
    folder.mkdir(mode=0o700, exist_ok=True)
    channels, height, width = released.pixels.shape[1:]
    mode: Literal["grey", "colour"] = "grey" if channels == 1 else "colour"
    source = data.open_source(
        where,
        Reading(size=height if height == width else None, mode=mode, label=reading.label, classes=released.classes),
    )
    budget = Budget.of(epsilon, count=source.spec.count)
    _remember(folder, candidates, where, source)
    try:
        ledger = Ledger(budget, folder / "ledger.jsonl")
    except UsageError as error:
        raise UsageError(
            "Expected the epsilon of the choice that was made for this release before, got another.",
            where=folder,
            fix="use that --epsilon again: its answer is kept",
        ) from error
    names = [c.name for c in candidates]
    (folder / "candidates.json").write_text(json.dumps(names, indent=2) + "\n", "utf-8")
    try:
        (choice,) = ledger.calibrate(NoisyChoice(candidates=len(candidates)))
        private = PrivateImages.seal(source, ledger, folder=folder)

        def correct(image: Tensor, label: Tensor) -> Tensor:
            answers = [c.student(image[None]).argmax(1)[0] for c in candidates]
            return (torch.stack(answers) == label).float()

        try:
            return private.choose(choice, purpose="choice of a classifier", score=correct)
        finally:
            private.close()
    finally:
        ledger.close()
        if not ledger.charges:
            Lab(folder).forget()  # nothing was charged, so another choice may be made here


def _remember(folder: Path, candidates: Sequence[Candidate], where: str, source: Source) -> None:
    """Record the question and the data: a stored answer must not be used for another question."""
    asked = {
        "candidates": [c.name for c in candidates],
        "origins": [c.origin for c in candidates],
        "data": content_of(where),
        "spec": asdict(source.spec),
    }
    path, got = folder / "run.json", ""
    if not path.exists() and (folder / "ledger.jsonl").exists():
        got = "one without a note of what was asked"
    else:
        try:
            Lab(folder).remember(asked)
        except UsageError:
            got = _difference(path, asked)
    if got:
        raise UsageError(
            f"Expected the candidates and the data of the choice that was made here before, got {got}.",
            where=path,
            fix="use the release, settings and data of that choice to see its answer again; another choice costs its "
            "records again, on top of the first, and needs a copy of the release in another folder",
        )


def _difference(path: Path, asked: dict[str, Any]) -> str:
    try:
        known, now = json.loads(path.read_text("utf-8")), json.loads(json.dumps(asked))
        other = {name for name in now if known.get(name) != now[name]}
    except (ValueError, AttributeError):
        return "a note that cannot be read"
    if {"data", "spec"} & other:
        return "other data"
    return (
        "other candidates" if "candidates" in other else "candidates of the same names from other images or schedules"
    )


def _score(
    candidates: Sequence[Candidate], right: Tensor, by_kept: int, by_choice: int, epsilon: float, separate_records: bool
) -> Score:
    """One accuracy per rule; the error is that of a share of so many test images."""
    last = [k for k, c in enumerate(candidates) if c.last]
    by_test = int(right.mean(1).argmax())
    cost = "of the validation records alone" if separate_records else "in addition to the release's own epsilon"
    rules = {
        "selected-last-step": (right[last].mean(0), {"candidate": "mean over all", "cost": "none"}),
        "selected-by-release": (right[by_kept], {"candidate": candidates[by_kept].name, "cost": "none"}),
        "selected-by-noisy-max": (
            right[by_choice],
            {"candidate": candidates[by_choice].name, "cost": f"epsilon {epsilon:g} {cost}"},
        ),
        LEAKY: (right[by_test], {"candidate": candidates[by_test].name, "cost": "no guarantee: do not use it"}),
    }
    parts = [
        Score(name, float(shares.mean()), float(shares.std() / len(shares) ** 0.5), True, details=details)
        for name, (shares, details) in rules.items()
    ]
    head = parts[2]
    return Score("selection", head.value, head.standard_error, True, details=head.details, parts=tuple(parts))
