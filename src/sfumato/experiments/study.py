"""Running a study: an engine fills its runs in the store, and table, figure and verdicts grow; all of it lab side."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.experiments.cell import sentence
from sfumato.experiments.claims import Measured
from sfumato.experiments.engines import Engine, local
from sfumato.experiments.live import watching
from sfumato.experiments.recipe import RecipeResult
from sfumato.experiments.recipe_format import ProfileName
from sfumato.experiments.shelf import Shelf
from sfumato.experiments.study_data import Place, plain_name
from sfumato.experiments.study_figures import draw
from sfumato.experiments.study_format import Condition, Study, StudyProfile, conditions_of, read_study, settings_of
from sfumato.experiments.study_run import DONE, StudyRun
from sfumato.experiments.study_table import document, markdown
from sfumato.lab.folder import Lab
from sfumato.lab.store import Store
from sfumato.learners.dp_sgd import DPSGD
from sfumato.privacy import GaussianSum, calibrate
from sfumato.training.plain import PlainTraining
from sfumato.values import Spec

FIGURE_EVERY = 60.0  # seconds


@dataclass
class StudyExperiment:
    """A study with a profile, a data folder and the store for what it yields."""

    name: str
    study: Study
    profile: ProfileName
    shelf: Shelf
    store: Store
    problems: dict[Condition, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, path: Path, *, profile: ProfileName = "small", out: Path, folder: Path | None = None
    ) -> StudyExperiment:
        study = read_study(path)
        if profile not in study.profiles:
            raise UsageError(
                f"Expected one of the recipe's profiles {', '.join(study.profiles)}; got {profile!r}.",
                fix="choose one of these",
            )
        return cls(path.stem, study, profile, Shelf.of(folder, dict(study.data)), Store(out.absolute()))

    @property
    def folder(self) -> Path:
        """Where table and figure go, beside the runs."""
        return self.store.folder / "tables" / f"{self.name}-{self.profile}"

    @property
    def amount(self) -> StudyProfile:
        return self.study.profiles[self.profile]

    def conditions(self, only: str = "") -> list[Condition]:
        """Those whose name has that text."""
        every = conditions_of(self.study, self.profile)
        chosen = [condition for condition in every if only.casefold() in condition.name.casefold()]
        if not chosen:
            raise UsageError(
                f"Expected --only as a part of a cell's name, got {only!r}.",
                fix=f"use a part of one such as {every[0].name!r}",
            )
        return chosen

    def runs(self, condition: Condition) -> list[StudyRun]:
        """The runs of a condition, one for each seed; a DataError where its data is not here."""
        place, amount = self._place(condition.data), self.amount
        return [
            StudyRun(
                kind=self.study.study,
                condition=condition,
                seed=seed,
                place=place,
                content=self.shelf.content(plain_name(condition.data)),
                settings=settings_of(amount, condition, seed),
                records=amount.records,
                candidates=amount.candidates,
                delta=amount.delta,
                checkpoints=amount.checkpoints,
                rounds=amount.rounds,
                removed=amount.removed,
            )
            for seed in range(amount.seeds)
        ]

    def _place(self, name: str) -> Place:
        where, reading = self.shelf.find(plain_name(name))
        entry = self.study.data.get(plain_name(name))
        size = reading.size or self.amount.size
        return Place(name, where, replace(reading, size=size), entry.group if entry else None)

    def plan(self, only: str = "") -> list[dict[str, Any]]:
        """Of each condition how it is trained and how long that takes, about; no private pixel is read."""
        planned = []
        for condition in self.conditions(only):
            settings = settings_of(self.amount, condition, 0)
            trainings = self.amount.seeds * (self.amount.rounds + 1 if self.study.study == "outliers" else 1)
            described: dict[str, Any] = {
                "cell": condition.name,
                "trainings": trainings,
                "minutes": trainings * self._seconds(settings) / 60,
            }
            if isinstance(settings, DPSGD):
                (mechanism,) = settings.plan(self._spec())
                assert isinstance(mechanism, GaussianSum)
                noise = _noise(mechanism, condition.epsilon, self.amount.delta)
                described |= {"rounds": mechanism.rounds, "sampling": mechanism.sampling, "noise_multiplier": noise}
            try:
                self._place(condition.data)
            except DataError as error:
                described["problem"] = sentence(error)
            planned.append(described)
        return planned

    def _seconds(self, settings: DPSGD | PlainTraining) -> float:
        if isinstance(settings, PlainTraining):
            return settings.seconds(self.amount.records, self.amount.size or 32)
        return settings.seconds(self._spec())

    def _spec(self) -> Spec:
        """Of the records that train, as far as it decides how long it takes."""
        side = self.amount.size or 32
        return Spec(self.amount.records, 3, side, side, tuple("0123456789"))

    def dry_run(self, only: str = "") -> RecipeResult:
        plan = self.plan(only)
        return RecipeResult(plan, _plan_text(plan))

    def table(self, only: str = "", *, engine: Engine = local) -> RecipeResult:
        """The table of a run, for machines and for people; a run without any result is an error."""
        made = self.run(only, engine=engine)
        problems = [self.problems.get(condition) for condition in self.conditions(only)]
        if all(problems):
            raise DataError(f"No cell could be run. {problems[0]}", where=self.folder / "table.md")
        where = f"Lab material, not for publication: {self.folder}"
        return RecipeResult(made, f"{(self.folder / 'table.md').read_text('utf-8')}\n{where}")

    def run(self, only: str = "", *, engine: Engine = local) -> dict[str, Any]:
        """Run what has not been run; the table is written anew after every run.

        The figure is too, unless it was drawn some seconds ago: a large one takes seconds.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with Lab(self.folder) as lab:
            runs = self._wanted(only)
            made, drawn = self._write(lab, figure=True), time.monotonic()
            conditions = {run.name: run.condition for run in runs}
            with watching(self.store.folder, runs) as watched:
                for outcome in engine(self.store.folder, runs):
                    watched.end(outcome)
                    if outcome.problem:
                        self.problems[conditions[outcome.name]] = outcome.problem
                    due = time.monotonic() - drawn > FIGURE_EVERY
                    made, drawn = self._write(lab, figure=due), time.monotonic() if due else drawn
            return self._write(lab, figure=True) if runs else made

    def _wanted(self, only: str) -> list[StudyRun]:
        """What is not in the store yet; a condition whose data is not here is a problem of its own."""
        chosen, wanted = set(self.conditions(only)), []
        for condition in self.conditions():
            try:
                runs = self.runs(condition)
            except SfumatoError as error:
                self.problems[condition] = sentence(error)
                continue
            if condition in chosen:
                wanted += [run for run in runs if not run.finished(self.store.folder)]
        return wanted

    def results(self) -> dict[Condition, dict[int, Measured]]:
        """What is in the store of every condition, by seed."""
        found: dict[Condition, dict[int, Measured]] = {}
        for condition in self.conditions():
            try:
                runs = self.runs(condition)
            except SfumatoError:
                continue
            measured = {run.seed: read for run in runs if (read := _read(run, self.store.folder)) is not None}
            if measured:
                found[condition] = measured
        return found

    def _write(self, lab: Lab, *, figure: bool) -> dict[str, Any]:
        conditions, results = self.conditions(), self.results()
        made = document(self.study, self.profile, conditions, results, self.problems)
        lab.write("table.json", json.dumps(made, indent=2, default=str) + "\n")
        lab.write("table.md", markdown(self.study, made))
        if figure:
            draw(self.study, conditions, results, self.folder / "figure.png")
        return made


def _read(run: StudyRun, store: Path) -> Measured | None:
    """What a run has stored; of rounds of removal those that are there."""
    measures = run.stored(store).measures()
    rounds = [measures[name]["value"] for name in run.wanted() if name in measures]
    if run.kind == "outliers":
        return Measured(rounds[0], rounds=rounds) if rounds else None
    if DONE not in measures:
        return None
    done = measures[DONE]
    return Measured(done["value"], rows=done.get("rows", []), epochs=done.get("epochs", 0.0))


@functools.cache
def _noise(mechanism: GaussianSum, epsilon: float, delta: float) -> float | None:
    (calibrated,) = calibrate((mechanism,), epsilon=epsilon, delta=delta, spent=[])
    noise: float | None = calibrated.noise_multiplier
    return noise


def _plan_text(planned: list[dict[str, Any]]) -> str:
    """A dry run for people."""
    lines = []
    for cell in planned:
        lines.append(f"{cell['cell']}: {cell['trainings']} trainings, about {max(1, round(cell['minutes']))} min")
        if "rounds" in cell:
            sampled = f"sampling {cell['sampling']:.4g}, noise multiplier {cell['noise_multiplier']:.4g}"
            lines.append(f"  {cell['rounds']} rounds, {sampled}")
        if "problem" in cell:
            lines.append(f"  {cell['problem']}")
    here = sum("problem" not in cell for cell in planned)
    minutes = sum(cell["minutes"] for cell in planned if "problem" not in cell)
    return "\n".join(
        [*lines, f"{here} of {len(planned)} conditions can be run here, in about {minutes:.0f} min of one core."]
    )
