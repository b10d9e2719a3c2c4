"""Running a recipe: an engine fills the cells in the store, and a table of them grows; all of it lab side."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, SfumatoError, UsageError
from sfumato.experiments.cell import CellJob, sentence
from sfumato.experiments.engines import Engine, EngineName, engine_of, local
from sfumato.experiments.figures import draw_curve, draw_pictures
from sfumato.experiments.hiding_comparison import HidingExperiment
from sfumato.experiments.hiding_format import is_hiding
from sfumato.experiments.live import watching
from sfumato.experiments.questions import plain_line, questions, technical_line
from sfumato.experiments.recipe import Cell, RecipeResult, Row, read_recipe, rows_of, written
from sfumato.experiments.recipe_format import ProfileName, Recipe
from sfumato.experiments.shelf import Shelf
from sfumato.experiments.study import StudyExperiment
from sfumato.experiments.study_format import is_study
from sfumato.experiments.table import document, markdown
from sfumato.experiments.toy import run_toy
from sfumato.experiments.tuning import Choice, charged_choices, chosen_on_public, statement
from sfumato.lab.folder import Lab
from sfumato.lab.store import Store, Stored
from sfumato.making.release import Job, plan_release
from sfumato.values import Images

DEFAULT_STORE = Path("runs")


@dataclass
class Experiment:
    """A recipe with a profile, a data folder and the store for what it yields."""

    name: str
    recipe: Recipe
    profile: ProfileName
    shelf: Shelf
    store: Store
    problems: dict[str, str] = field(default_factory=dict)  # why a row has no score, by its name
    kept: list[Row] | None = None  # what tuning on public data has left; None: all
    choices: list[Choice] = field(default_factory=list)

    @classmethod
    def of(
        cls, path: Path, *, profile: ProfileName = "small", out: Path = DEFAULT_STORE, folder: Path | None = None
    ) -> Experiment:
        recipe = read_recipe(path)
        return cls(path.stem, recipe, profile, Shelf.of(folder, recipe.data), Store(out.absolute()))

    def rows(self, only: str = "") -> list[Row]:
        """The lines whose name has that text."""
        rows = rows_of(self.recipe, self.profile) if self.kept is None else self.kept
        chosen = [row for row in rows if only.casefold() in row.name.casefold()]
        if rows and not chosen:
            raise UsageError(
                f"Expected --only as a part of a cell's name, got {only!r}.",
                fix=f"use a part of one such as {rows[0].name!r}",
            )
        return chosen

    def job(self, row: Row) -> Job:
        where, reading = self.shelf.find(row.cell.data)
        public = self.shelf.find(row.cell.public)[0] if row.cell.public else None
        reading = replace(reading, size=reading.size or row.cell.size, mode=reading.mode or row.cell.mode)
        settings = dict(row.cell.settings)
        if row.cell.repeat:  # of a method whose own chance has a seed, that one changes too
            settings["seed"] = int(settings.get("seed", 0)) + row.cell.repeat
        return Job(
            where,
            row.cell.method,
            row.cell.epsilon,
            row.cell.delta,
            public,
            row.cell.count,
            reading,
            settings=tuple((name, written(value)) for name, value in settings.items()),
        )

    def cell(self, row: Row) -> CellJob:
        """The row as an engine is handed it; its inputs name data by content, so that a folder may move."""
        job = self.job(row)
        inputs = {
            **asdict(row.cell),
            "settings": dict(job.settings),
            "reading": asdict(job.reading),
            "data_content": self.shelf.content(row.cell.data),
            "public_content": self.shelf.content(row.cell.public) if row.cell.public else "",
            "sfumato": version("sfumato"),
        }
        return CellJob(
            row.name, inputs, job, self.recipe.measure, (row.student,), self.recipe.profiles[self.profile].metrics
        )

    def plan(self, only: str = "") -> list[dict[str, Any]]:
        """Of each cell what it would ask, cost and take; no private pixel is read."""
        planned: dict[Cell, dict[str, Any]] = {}
        for row in self.rows(only):
            if row.cell in planned:  # another student of the same release
                continue
            described: dict[str, Any] = {"cell": row.name, "budget": row.cell.epsilon}
            try:
                plan = plan_release(self.job(row))
                described |= {
                    "asks": questions(plan.mechanisms),
                    "epsilon": plan.epsilon,
                    "minutes": plan.seconds / 60,
                }
            except SfumatoError as error:
                described["problem"] = sentence(error)
            planned[row.cell] = described
        return list(planned.values())

    def dry_run(self, only: str = "") -> RecipeResult:
        """The plan, for machines and for people."""
        plan = self.plan(only)
        return RecipeResult(plan, _plan_text(plan))

    def table(self, only: str = "", *, engine: Engine = local) -> RecipeResult:
        """The table of a run, for machines and for people; a run without any result is an error."""
        document = self.run(only, engine=engine)
        if self.problems and all(row.name in self.problems for row in self.rows(only)):
            raise DataError(
                f"No cell could be run. {next(iter(self.problems.values()))}", where=self.folder / "table.md"
            )
        where = f"Lab material, not for publication: {self.folder}"
        return RecipeResult(document, f"{(self.folder / 'table.md').read_text('utf-8')}\n{where}")

    @property
    def folder(self) -> Path:
        """Where the table goes, beside the cells."""
        return self.store.folder / "tables" / f"{self.name}-{self.profile}"

    def run(self, only: str = "", *, engine: Engine = local) -> dict[str, Any]:
        """Run what has not been run; the table is written anew after every cell."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tuning = self.recipe.tuning
        with Lab(self.folder) as lab:
            if self.recipe.show == "toy":
                return run_toy(self.recipe, lab)
            if tuning and tuning.on == "public":
                self.kept, self.choices = chosen_on_public(self, tuning, engine)
            cells = self._cells(self.rows(only))
            table = self._write(lab)
            with watching(self.store.folder, list(cells.values())) as watched:
                for outcome in engine(self.store.folder, list(cells.values())):
                    watched.end(outcome)
                    if outcome.problem:
                        mine = next(cell for cell, job in cells.items() if job.name == outcome.name)
                        self.problems |= {row.name: outcome.problem for row in self.rows() if row.cell == mine}
                    table = self._write(lab)
            if tuning and tuning.on == "private":
                self.choices = charged_choices(self, tuning)
                table = self._write(lab)
            return table

    def _cells(self, rows: list[Row]) -> dict[Cell, CellJob]:
        """What an engine is to do; rows that differ in the student alone are one cell with several students."""
        cells: dict[Cell, CellJob] = {}
        for row in rows:
            try:
                cell = cells.get(row.cell) or replace(self.cell(row), students=())
                cells[row.cell] = replace(cell, students=(*cell.students, row.student))
            except SfumatoError as error:  # for example, its data is not here: a problem of that row alone
                self.problems[row.name] = sentence(error)
        return cells

    def stored(self, row: Row) -> Stored | None:
        """Where a row's cell lies, if its data is here."""
        try:
            return self.store.cell(self.cell(row).inputs)
        except DataError:
            return None

    def _write(self, lab: Lab) -> dict[str, Any]:
        rows = self.rows()
        found = [self.stored(row) for row in rows]
        scores = [{} if cell is None else cell.measures() for cell in found]
        tuned = statement(self.recipe.tuning, rows, self.choices)
        made = document(self.recipe, self.profile, rows, scores, self.problems, tuned)
        lab.write("table.json", json.dumps(made, indent=2, default=str) + "\n")
        lab.write("table.md", markdown(self.recipe, self.profile, made))
        if self.recipe.show == "curve":
            draw_curve(rows, scores, self.folder / "figure.png", title=self.recipe.title)
        done = [(row, cell) for row, cell in zip(rows, found, strict=True) if cell and cell.release.exists()]
        if self.recipe.show == "grid" and done:
            draw_pictures([self._pictures(row, cell) for row, cell in done], self.folder)
        return made

    def _pictures(self, row: Row, cell: Stored) -> tuple[str, Images, Images, Images | None]:
        """A line of a figure: its caption, private, released and public images."""
        job = self.job(row)
        released = data.load(cell.release)
        private = data.load(job.data, job.reading)
        channels, side = released.pixels.shape[1], released.pixels.shape[2]
        reading = Reading(size=side, mode="grey" if channels == 1 else "colour")
        return row.name, private, released, None if job.public is None else data.load(job.public, reading)


def run_recipe(
    recipe: Path | str,
    *,
    profile: ProfileName = "small",
    only: str = "",
    out: Path | str = DEFAULT_STORE,
    data: Path | str | None = None,
    engine: EngineName = "local",
    workers: int | None = None,
    address: str | None = None,
    dry_run: bool = False,
) -> RecipeResult:
    """Run the cells of a recipe that are not in the store `out` yet, and write its table; all of it is lab material.

    `data` is the folder of the data sets; `only` chooses cells whose name has that text. A dry run shows what would be
    asked, what it would cost and how long it would take, and reads no private pixel.
    """
    folder, path = None if data is None else Path(data), Path(recipe)
    experiment = _kind_of(path).of(path, profile=profile, out=Path(out), folder=folder)
    chosen = engine_of(engine, workers=workers, address=address)
    return experiment.dry_run(only) if dry_run else experiment.table(only, engine=chosen)


def _kind_of(path: Path) -> type[Experiment | StudyExperiment | HidingExperiment]:
    """By the first key that says it: releases that are compared, classifiers of a study, or hiders of an attribute."""
    if is_hiding(path):
        return HidingExperiment
    return StudyExperiment if is_study(path) else Experiment


def _plan_text(planned: list[dict[str, Any]]) -> str:
    """A dry run for people."""
    lines = []
    for cell in planned:
        lines.append(cell["cell"])
        if "problem" in cell:
            lines.append(f"  {cell['problem']}")
            continue
        for question in cell["asks"]:
            lines += [plain_line(question), technical_line(question)]
        lines.append(f"  costs   epsilon {cell['epsilon']:.4g} of {cell['budget']:g}")
        lines.append(f"  takes   about {max(1, round(cell['minutes']))} min to release, and then its students")
    minutes = sum(cell.get("minutes", 0) for cell in planned)
    here = sum("minutes" in cell for cell in planned)
    return "\n".join([*lines, f"{here} of {len(planned)} releases can be made here, in about {minutes:.0f} min."])
