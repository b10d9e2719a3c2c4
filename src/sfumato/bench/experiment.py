"""Running a recipe: a release for each cell, students and metrics on it, and a table that grows; all of it lab side."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sfumato import contracts, data
from sfumato.bench.evaluate import evaluate_release
from sfumato.bench.figures import draw_curve, draw_pictures
from sfumato.bench.lab import Lab
from sfumato.bench.recipe import Entry, ProfileName, Recipe, Row, read_recipe, rows_of, written
from sfumato.bench.run import Job, make_release, plan_release
from sfumato.bench.student import train_student
from sfumato.bench.table import document, markdown
from sfumato.bench.toy import run_toy
from sfumato.contracts import Reading, Sampler
from sfumato.errors import DataError, EnvironmentProblem, SfumatoError, UsageError
from sfumato.values import Images

ENDINGS = ("", ".npz", ".zip", ".parquet")  # of a data set that the recipe gives no file for


@dataclass(frozen=True, slots=True)
class Shelf:
    """Data sets by the names that recipes call them; what was looked for once is remembered."""

    folder: Path | None
    entries: dict[str, Entry]
    seen: dict[str, tuple[str, Reading] | DataError] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, Reading]:
        """Where a data set is and how it is read; a DataError says what to do where it is not here."""
        if name not in self.seen:
            try:
                self.seen[name] = self._look(name)
            except DataError as error:
                self.seen[name] = error
        found = self.seen[name]
        if isinstance(found, DataError):
            raise found
        return found

    def _look(self, name: str) -> tuple[str, Reading]:
        entry = self.entries.get(name)
        spellings = dict.fromkeys((name, name.replace("-", "_")))
        files = entry.files if entry else tuple(s + ending for s in spellings for ending in ENDINGS)
        reading = Reading(label=entry.label, size=entry.size, mode=entry.mode) if entry else Reading()
        for file in files if self.folder else ():
            if (path := Path(self.folder or "") / file).exists():
                return str(path.absolute()), reading
        wanted = f"put {' or '.join(files[:2])} into the folder that --data or SFUMATO_DATA names"
        if name not in contracts.names("data"):
            raise DataError(f"The data set {name} is not here.", fix=wanted)
        try:
            data.open_source(name, reading)  # of our own sets, also what can be downloaded
        except SfumatoError as error:
            raise DataError(f"The data set {name} is not here.", fix=f"{wanted}, or {error.fix}") from error
        return name, reading


@dataclass
class Experiment:
    """A recipe with a profile, a data folder and a folder for what it yields."""

    name: str
    recipe: Recipe
    profile: ProfileName
    shelf: Shelf
    out: Path
    problems: dict[str, str] = field(default_factory=dict)  # why a cell has no score, by its id

    @classmethod
    def of(cls, path: Path, *, profile: ProfileName = "small", out: Path | None = None, folder: Path | None = None
           ) -> Experiment:  # fmt: skip
        recipe = read_recipe(path)
        if folder is not None and not folder.is_dir():
            raise UsageError("Expected --data (or SFUMATO_DATA) as a folder.", where=folder)
        out = out or Path("runs") / f"{path.stem}-{profile}"
        return cls(path.stem, recipe, profile, Shelf(folder, recipe.data), out.absolute())

    def rows(self, only: str = "") -> list[Row]:
        """The lines whose name has that text."""
        rows = rows_of(self.recipe, self.profile)
        chosen = [row for row in rows if only.casefold() in row.name.casefold()]
        if rows and not chosen:
            raise UsageError(f"Expected --only as a part of a cell's name, got {only!r}.",
                             fix=f"use a part of one such as {rows[0].name!r}")  # fmt: skip
        return chosen

    def job(self, row: Row) -> Job:
        where, reading = self.shelf.find(row.cell.data)
        public = self.shelf.find(row.cell.public)[0] if row.cell.public else None
        reading = replace(reading, size=reading.size or row.cell.size, mode=reading.mode or row.cell.mode)
        settings = tuple((name, written(value)) for name, value in row.cell.settings)
        return Job(where, row.cell.method, row.cell.epsilon, row.cell.delta, public, row.cell.count, reading,
                   settings=settings)  # fmt: skip

    def plan(self, only: str = "") -> list[dict[str, Any]]:
        """Of each cell what it would ask, cost and take; no private pixel is read."""
        planned: dict[str, dict[str, Any]] = {}
        for row in self.rows(only):
            if row.id in planned:  # another student of the same release
                continue
            told: dict[str, Any] = {"cell": row.name, "folder": row.id, "budget": row.cell.epsilon}
            try:
                plan = plan_release(self.job(row))
                told |= {"asks": [m.to_dict() for m in plan.mechanisms], "epsilon": plan.epsilon,
                         "minutes": plan.seconds / 60}  # fmt: skip
            except SfumatoError as error:
                told["problem"] = _sentence(error)
            planned[row.id] = told
        return list(planned.values())

    def planned(self, only: str = "") -> tuple[list[dict[str, Any]], str]:
        """The plan for machines and for people."""
        plan = self.plan(only)
        return plan, _plan_text(plan)

    def table(self, only: str = "") -> tuple[dict[str, Any], str]:
        """The same of a run."""
        made = self.run(only)
        if self.problems and all(row.id in self.problems for row in self.rows(only)):
            raise DataError(f"No cell could be run. {next(iter(self.problems.values()))}",
                            where=self.out / "table.md")  # fmt: skip
        where = f"Lab material, not for publication: {self.out}"
        return made, f"{(self.out / 'table.md').read_text('utf-8')}\n{where}"

    def run(self, only: str = "") -> dict[str, Any]:
        """Run what has not been run; the table is written anew after every cell."""
        rows = self.rows(only)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with Lab(self.out) as lab:
            if self.recipe.show == "toy":
                return run_toy(self.recipe, lab)
            (self.out / "cells").mkdir(exist_ok=True)
            for number, row in enumerate(rows, 1):
                print(f"{number} of {len(rows)}: {row.name}", file=sys.stderr, flush=True)
                try:
                    self._measure(row)
                except EnvironmentProblem:
                    raise  # a full disk is not one cell's problem
                except SfumatoError as error:
                    self.problems[row.id] = _sentence(error)
                table = self._write(lab)
            return table

    def _measure(self, row: Row) -> None:
        """Everything that the recipe measures of a cell and that is not on file yet."""
        file = Scores(self.out / "cells" / row.id)
        wanted = [row.student.key if name == "student" else name for name in self.recipe.measure]
        if not [name for name in wanted if name not in file.read()]:
            return
        job, release = self.job(row), file.folder / "release"
        file.folder.mkdir(exist_ok=True)
        if not release.exists():
            make_release(job, release, after=self._judge(job, file))
        # Stopped between release and judgement: the teacher is gone.
        lost = [name for name in ("teacher", "diary") if name in wanted and name not in file.read()]
        file.add(dict.fromkeys(lost))
        metrics = tuple(name for name in wanted if name in contracts.names("metrics") and name not in file.read())
        if metrics:
            scores = evaluate_release(release, job.data, reading=job.reading, metrics=metrics, public=job.public)
            file.add({name: asdict(score) for name, score in zip(metrics, scores, strict=True)})
        if row.student.key in wanted and row.student.key not in file.read():
            s = row.student
            score = train_student(release, job.data, arch=s.arch, seeds=s.seeds, schedule=s.schedule, loss=s.loss,
                                  temperature=s.temperature, reading=job.reading)  # fmt: skip
            file.add({s.key: asdict(score)})

    def _judge(self, job: Job, file: Scores) -> Callable[[Sampler], None]:
        """Notes what only the sampler knows: its teacher's accuracy, and how the losses went."""

        def judge(sampler: Sampler) -> None:
            if "diary" in self.recipe.measure:
                file.add({"diary": getattr(sampler, "diary", None)})
            if "teacher" in self.recipe.measure:
                classify = getattr(sampler, "classify", None)
                file.add({"teacher": None if classify is None else _accuracy(classify, job)})

        return judge

    def _write(self, lab: Lab) -> dict[str, Any]:
        rows = self.rows()
        scores = [Scores(self.out / "cells" / row.id).read() for row in rows]
        made = document(self.recipe, self.profile, rows, scores, self.problems)
        lab.write("table.json", json.dumps(made, indent=2, default=str) + "\n")
        lab.write("table.md", markdown(self.recipe, self.profile, made))
        done = [row for row, score in zip(rows, scores, strict=True) if score]
        if self.recipe.show == "curve":
            draw_curve(rows, scores, self.out / "figure.png", title=self.recipe.title)
        elif self.recipe.show == "grid" and done:
            draw_pictures([self._pictures(row) for row in done], self.out)
        return made

    def _pictures(self, row: Row) -> tuple[str, Images, Images, Images | None]:
        """A line of a figure: its caption, private, released and public images."""
        job = self.job(row)
        released = data.load(self.out / "cells" / row.id / "release")
        private = data.load(job.data, job.reading)
        channels, side = released.pixels.shape[1], released.pixels.shape[2]
        look = Reading(size=side, mode="grey" if channels == 1 else "colour")
        return row.name, private, released, None if job.public is None else data.load(job.public, look)


@dataclass(frozen=True, slots=True)
class Scores:
    """What was measured of a cell, in one file that is whole at any time."""

    folder: Path

    def read(self) -> dict[str, Any]:
        path = self.folder / "scores.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}

    def add(self, scores: dict[str, Any]) -> None:
        if scores:
            Lab(self.folder).write("scores.json", json.dumps({**self.read(), **scores}, indent=2, default=str) + "\n")


def _accuracy(classify: Callable[[Any], Any], job: Job) -> dict[str, Any]:
    """The teacher on the private test images; the release is on disk by now."""
    split = data.has_split(job.data, "test")
    test = data.load(job.data, replace(job.reading, split="test" if split else "train"))
    right = (classify(test.pixels).argmax(1) == test.labels).double().mean().item()
    return {"value": right, "standard_error": None, "details": {"test_split": split}}


def _sentence(error: SfumatoError) -> str:
    return f"{error.what} To mend it: {error.fix}." if error.fix else error.what


def _plan_text(planned: list[dict[str, Any]]) -> str:
    """A dry run for people."""
    lines = []
    for cell in planned:
        lines.append(cell["cell"])
        if "problem" in cell:
            lines.append(f"  {cell['problem']}")
            continue
        for m in cell["asks"]:
            lines.append(f"  asks    {m['kind']}, noise multiplier {m['noise_multiplier']:.4g}, rounds {m['rounds']}, "
                         f"sampling {m['sampling']:.4g}")  # fmt: skip
        lines.append(f"  costs   epsilon {cell['epsilon']:.4g} of {cell['budget']:g}")
        lines.append(f"  takes   about {max(1, round(cell['minutes']))} min to release, and then its students")
    minutes = sum(cell.get("minutes", 0) for cell in planned)
    here = sum("minutes" in cell for cell in planned)
    return "\n".join([*lines, f"{here} of {len(planned)} releases can be made here, in about {minutes:.0f} min."])
