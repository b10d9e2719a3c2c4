"""Running a comparison of hiders: an engine fills its runs in the store, and table and figures grow; all lab side."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato import contracts, data
from sfumato.contracts import Reading
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.experiments.cell import Runnable, sentence
from sfumato.experiments.engines import Engine, local
from sfumato.experiments.hiding_figures import draw_faces, draw_scatter
from sfumato.experiments.hiding_format import (
    REAL,
    Choice,
    Condition,
    Hiding,
    HidingProfile,
    Section,
    conditions_of,
    largest,
    read_hiding,
    settings_of,
    takes_weights,
)
from sfumato.experiments.hiding_run import BaselineRun, HidingRun, Judging, read_faces
from sfumato.experiments.hiding_table import Measured, document, markdown
from sfumato.experiments.live import watching
from sfumato.experiments.recipe import RecipeResult
from sfumato.experiments.recipe_format import ProfileName
from sfumato.experiments.shelf import Shelf
from sfumato.judging.attribute_judges import find_judge
from sfumato.judging.attribute_leak import FOLDS
from sfumato.lab.folder import Lab, content_of
from sfumato.lab.store import Store
from sfumato.making.hide import HidingJob
from sfumato.making.settings import with_settings
from sfumato.values import Spec

FIGURES_EVERY = 60.0  # seconds
SCATTER, FACES = "figure.png", "figure_faces.png"


@dataclass
class HidingExperiment:
    """A comparison of hiders with a profile, a data folder and the store for what it yields."""

    name: str
    recipe: Hiding
    profile: ProfileName
    shelf: Shelf
    store: Store
    problems: dict[Condition, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, path: Path, *, profile: ProfileName = "small", out: Path, folder: Path | None = None
    ) -> HidingExperiment:
        recipe = read_hiding(path)
        if profile not in recipe.profiles:
            raise UsageError(
                f"Expected one of the recipe's profiles {', '.join(recipe.profiles)}; got {profile!r}.",
                fix="choose one of these",
            )
        return cls(path.stem, recipe, profile, Shelf.of(folder, dict(recipe.data)), Store(out.absolute()))

    @property
    def folder(self) -> Path:
        """Where table and figures go, beside the runs."""
        return self.store.folder / "tables" / f"{self.name}-{self.profile}"

    @property
    def amount(self) -> HidingProfile:
        return self.recipe.profiles[self.profile]

    def conditions(self, only: str = "") -> list[Condition]:
        """Those whose name has that text."""
        every = conditions_of(self.recipe, self.profile)
        chosen = [condition for condition in every if only.casefold() in condition.name.casefold()]
        if not chosen:
            fix = f"use a part of one such as {every[0].name!r}" if every else "choose another --profile"
            raise UsageError(f"Expected --only as a part of a cell's name, got {only!r}.", fix=fix)
        return chosen

    def runs(self, condition: Condition) -> list[HidingRun]:
        """The runs of a condition, one for each seed; a DataError where its data is not here."""
        return [self._run(condition, seed) for seed in range(self.amount.seeds)]

    def baseline(self, condition: Condition, seed: int) -> BaselineRun:
        """The judges of real images that the methods of its setup share, and other setups that release the same."""
        shared = self._known(condition, seed)
        choices = dict.fromkeys(
            choice
            for other in self.conditions()
            if (other.release, other.everywhere) == (condition.release, condition.everywhere)
            for choice in other.choices
        )
        parts = largest(choices)
        return BaselineRun(
            f"{_real_images(condition)}, seed {seed}",
            {"kind": "baseline", "method": REAL, "parts": parts, **shared},
            replace(self._job(condition, seed), parts=parts),
            self._judging(tuple(choices)),
        )

    def _run(self, condition: Condition, seed: int) -> HidingRun:
        settings = settings_of(self.recipe, self.amount, condition.method, seed, condition.varied)
        train = [self._find(name) for name in condition.train]
        weights, _ = self._weights(condition.method)
        others = [] if condition.train == (condition.release,) else train
        job = replace(
            self._job(condition, seed),
            method=condition.method,
            train_on=tuple(where for where, _ in others),
            train_readings=tuple(reading for _, reading in others),
            settings=(*settings.items(), *weights),
        )
        return HidingRun(
            f"{condition.name}, seed {seed}",
            self._inputs(condition, seed),
            job,
            self._judging(condition.choices),
            self.baseline(condition, seed),
        )

    def _inputs(self, condition: Condition, seed: int) -> dict[str, Any]:
        """What a run of a method is filed under."""
        return {
            "kind": "hidden",
            "method": condition.method,
            "parts": largest(condition.choices),
            "settings": settings_of(self.recipe, self.amount, condition.method, seed, condition.varied),
            "weights_content": self._weights(condition.method)[1],
            "train": list(condition.train),
            "train_content": [self.shelf.content(name) for name in condition.train],
            "train_reading": [asdict(self._find(name)[1]) for name in condition.train],
            **self._known(condition, seed),
        }

    def _siblings(self, condition: Condition, seed: int) -> tuple[dict[str, Any], ...]:
        """Of the runs of other methods that learn from the same images."""
        found = []
        for other in self.conditions():
            same = (other.setup, other.everywhere) == (condition.setup, condition.everywhere)
            if same and other.method != condition.method:
                with contextlib.suppress(SfumatoError):  # its data or weights are not here
                    found.append(self._inputs(other, seed))
        return tuple(found)

    def _job(self, condition: Condition, seed: int) -> HidingJob:
        """What all methods are asked for alike."""
        where, reading = self._find(condition.release)
        return HidingJob(
            where,
            self.recipe.hiding,
            keep=self.recipe.keep,
            shares=self.recipe.shares,
            parts=largest(condition.choices),
            front=condition.everywhere,
            seed=seed,
            reading=reading,
        )

    def _known(self, condition: Condition, seed: int) -> dict[str, Any]:
        """What a run depends on, whatever the method: data by content, so that a folder may move."""
        return {
            "hiding": self.recipe.hiding,
            "keep": list(self.recipe.keep),
            "data": condition.release,
            "data_content": self.shelf.content(condition.release),
            "reading": asdict(self._find(condition.release)[1]),
            "shares": list(self.recipe.shares),
            "front": condition.everywhere,
            "repeat": seed,
            "sfumato": version("sfumato"),
        }

    def _judging(self, choices: tuple[Choice, ...]) -> Judging:
        return Judging(self.amount.judge, self.amount.judge_seeds, choices)

    def _find(self, name: str) -> tuple[str, Reading]:
        where, reading = self.shelf.find(name)
        entry = self.recipe.data.get(name)
        split = "train" if entry is None else entry.split
        size, mode = reading.size or self.amount.size, reading.mode or self.amount.mode
        return where, replace(reading, size=size, mode=mode, split=split)

    def _weights(self, method: str) -> tuple[tuple[tuple[str, str], ...], str]:
        """A method's setting for weights that others trained, and their digest; nothing where it takes none."""
        wanted = self.amount.weights
        if wanted is None or not takes_weights(method):
            return (), ""
        path = None if self.shelf.folder is None else (self.shelf.folder / wanted).absolute()
        if path is None or not path.is_dir():
            raise DataError(
                f"The weights {wanted} are not here.",
                fix=f"put the folder {wanted} into the folder that --data or SFUMATO_DATA names",
            )
        return (("weights", str(path)),), content_of(str(path))

    def plan(self, only: str = "") -> list[dict[str, Any]]:
        """Of each condition how many runs it has, what is measured, and how long that takes; reads no pixel."""
        chosen = self.conditions(only)
        planned = [self._planned(condition.name, condition, condition.method) for condition in chosen]
        here = [c for c, described in zip(chosen, planned, strict=True) if "problem" not in described]
        return [self._planned(_real_images(condition), condition) for condition in _once_each(here)] + planned

    def _planned(self, name: str, condition: Condition, method: str = "") -> dict[str, Any]:
        described: dict[str, Any] = {"cell": name, "runs": self.amount.seeds}
        try:
            spec = self._spec(condition.release)
            measures = self.baseline(condition, 0).judging.wanted()
            seconds = self._judging_seconds(spec, condition.choices, 1.0)
            if method:
                run = self._run(condition, 0)
                measures = run.judging.wanted()
                inside = (FOLDS - 1) / FOLDS
                seconds = self._hiding_seconds(spec, run) + self._judging_seconds(spec, condition.choices, 1 + inside)
            described |= {"measures": measures, "minutes": seconds * self.amount.seeds / 60}
        except SfumatoError as error:
            described["problem"] = sentence(error)
        return described

    def _spec(self, name: str) -> Spec:
        where, reading = self._find(name)
        hidden = self.recipe.hiding
        label = next(
            iter(data.parts_of(hidden, data.attributes_of(where, reading))), hidden
        )  # of race+gender, the race
        return data.open_source(where, replace(reading, label=label)).spec

    def _hiding_seconds(self, spec: Spec, run: HidingRun) -> float:
        tr, v, g, _ = (share / sum(self.recipe.shares) for share in self.recipe.shares)
        learnt = sum(self._spec(name).count for name in run.inputs["train"]) * tr
        task = replace(spec, count=max(1, round(learnt)))
        hider = with_settings(contracts.find("hiding", run.job.method).for_task(task), dict(run.job.settings))
        seconds: float = hider.seconds(task)
        return seconds * (1 + spec.count * (tr + v + g) / task.count) / 2

    def _judging_seconds(self, spec: Spec, choices: Sequence[Choice], trainings: float) -> float:
        """Of all judges of a seed; `trainings` of each are on as many images as the parts have."""
        shares = dict(zip(("tr", "v", "g"), self.recipe.shares, strict=False))
        whole = sum(self.recipe.shares)
        counts = [spec.count * sum(shares[part] for part in choice.parts.split("+")) / whole for choice in choices]
        attributes = 1 + len(self.recipe.keep)
        each = find_judge(self.amount.judge).seconds(round(sum(counts)), spec.height * spec.width, attributes)
        return each * trainings * self.amount.judge_seeds

    def dry_run(self, only: str = "") -> RecipeResult:
        plan = self.plan(only)
        return RecipeResult(plan, _plan_text(plan))

    def table(self, only: str = "", *, engine: Engine = local) -> RecipeResult:
        """The table of a run, for machines and for people; a run without any result is an error."""
        made = self.run(only, engine=engine)
        problems = [self.problems.get(condition) for condition in self.conditions(only)]
        if all(problems) and not any(row["seeds"] for section in made["sections"] for row in section["rows"]):
            raise DataError(f"No cell could be run. {problems[0]}", where=self.folder / "table.md")
        where = f"Lab material, not for publication: {self.folder}"
        return RecipeResult(made, f"{(self.folder / 'table.md').read_text('utf-8')}\n{where}")

    def run(self, only: str = "", *, engine: Engine = local) -> dict[str, Any]:
        """Run what has not been run: first the judges of real images, which the methods share, then the methods.

        The table is written anew after every run; so are the figures, unless they were drawn some seconds ago.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with Lab(self.folder) as lab:
            wanted = self._wanted(only)
            made = self._write(lab, figures=True)
            baselines = {run.baseline.name: run.baseline for _, run in wanted}
            unfinished = [run for run in baselines.values() if not run.finished(self.store.folder)]
            affected = {name: [c for c, run in wanted if run.baseline.name == name] for name in baselines}
            self._through(engine, lab, unfinished, affected)
            self._through(engine, lab, [run for _, run in wanted], {run.name: [c] for c, run in wanted})
            return self._write(lab, figures=True) if wanted else made

    def _through(
        self, engine: Engine, lab: Lab, runs: Sequence[Runnable], conditions: dict[str, list[Condition]]
    ) -> None:
        """Let the engine do these runs; what stops one is a problem of its conditions."""
        drawn = time.monotonic()
        with watching(self.store.folder, runs) as watched:
            for outcome in engine(self.store.folder, runs):
                watched.end(outcome)
                if outcome.problem:
                    for condition in conditions[outcome.name]:
                        self.problems.setdefault(condition, outcome.problem)
                due = time.monotonic() - drawn > FIGURES_EVERY
                self._write(lab, figures=due)
                drawn = time.monotonic() if due else drawn

    def _wanted(self, only: str) -> list[tuple[Condition, HidingRun]]:
        """What is not in the store yet; a condition whose data is not here is a problem of its own."""
        chosen, wanted = set(self.conditions(only)), list[tuple[Condition, HidingRun]]()
        for condition in self.conditions():
            try:
                runs = self.runs(condition)
            except SfumatoError as error:
                self.problems[condition] = sentence(error)
                continue
            for seed, run in enumerate(runs if condition in chosen else ()):
                if not run.finished(self.store.folder):
                    wanted.append((condition, replace(run, siblings=self._siblings(condition, seed))))
        return wanted

    def results(self) -> Measured:
        """What is in the store of every section."""
        found = Measured()
        for condition in self.conditions():
            for seed in range(self.amount.seeds):
                with contextlib.suppress(SfumatoError):  # its data is not here
                    _add_real(found, condition, seed, self.baseline(condition, seed), self.store.folder)
                    _add_hidden(found, condition, seed, self._run(condition, seed), self.store.folder)
        return found

    def _write(self, lab: Lab, *, figures: bool) -> dict[str, Any]:
        conditions = self.conditions()
        made = document(self.recipe, self.profile, conditions, self.results(), self.problems)
        lab.write("table.json", json.dumps(made, indent=2, default=str) + "\n")
        lab.write("table.md", markdown(self.recipe, made))
        if figures:
            draw_scatter(made, self.folder / SCATTER)
            draw_faces(self.recipe.title, self._faces(conditions), self.folder / FACES)
        return made

    def _faces(self, conditions: list[Condition]) -> dict[str, dict[str, Any]]:
        """By place and method, real faces and what the first seed made of them."""
        found: dict[str, dict[str, Any]] = {}
        for condition in conditions:
            try:
                pictures = read_faces(self._run(condition, 0), self.store.folder)
            except SfumatoError:
                continue
            if pictures is not None:
                real, made = pictures
                found.setdefault(condition.place, {REAL: real})[condition.row] = made
        return found


def _add_real(found: Measured, condition: Condition, seed: int, run: BaselineRun, store: Path) -> None:
    measures = run.stored(store).measures()
    for choice in condition.choices:
        if (name := run.judging.named(choice)) in measures:
            found.real.setdefault(Section.of(condition, choice), {})[seed] = measures[name]["value"]


def _add_hidden(found: Measured, condition: Condition, seed: int, run: HidingRun, store: Path) -> None:
    measures = run.stored(store).measures()
    for choice in condition.choices:
        if (name := run.judging.named(choice)) in measures:
            methods = found.hidden.setdefault(Section.of(condition, choice), {})
            methods.setdefault(condition.row, {})[seed] = measures[name]["value"]


def _real_images(condition: Condition) -> str:
    front = ", front faces alone" if condition.everywhere else ""
    return f"{condition.release}{front}, {REAL} images"


def _once_each(conditions: list[Condition]) -> list[Condition]:
    """One condition for each kind of real images."""
    return list({(condition.release, condition.everywhere): condition for condition in conditions}.values())


def _plan_text(planned: list[dict[str, Any]]) -> str:
    """A dry run for people."""
    lines = []
    for cell in planned:
        if "problem" in cell:
            lines.append(f"{cell['cell']}: {cell['runs']} runs\n  {cell['problem']}")
            continue
        minutes = max(1, round(cell["minutes"]))
        lines.append(
            f"{cell['cell']}: {cell['runs']} runs, about {minutes} min\n  measures {', '.join(cell['measures'])}"
        )
    here = [cell for cell in planned if "problem" not in cell]
    minutes = sum(cell["minutes"] for cell in here)
    total = f"{len(here)} of {len(planned)} conditions can be run here, in about {minutes:.0f} min of one core."
    return "\n".join([*lines, total, "There is no epsilon here: what is hidden is measured."])
