"""Which of several settings is kept: chosen on public data at no cost, or on the private data for a charged epsilon.

A recipe with `[tuning]` and lists of settings in its grids asks for it. On public data every candidate is tried
there, and the private data is asked with the chosen ones alone. On the private data every candidate is released and
charged, and so is the choice: one noisy maximum over how many records a small CNN of each release gets right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sfumato.data import open_source
from sfumato.errors import DataError, UsageError
from sfumato.experiments.cell import CellJob
from sfumato.experiments.recipe import Cell, Row
from sfumato.experiments.recipe_format import Tuning
from sfumato.judging.selection import Candidate, charged_choice, origin_of
from sfumato.lab.store import PUBLIC_TRIAL, Stored
from sfumato.privacy import Budget
from sfumato.release import read_release
from sfumato.training.student import Schedule, train, training_images

if TYPE_CHECKING:
    from sfumato.experiments.engines import Engine
    from sfumato.experiments.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice: among what, by which scores, and what it cost."""

    group: str
    chosen: str
    scores: dict[str, float]
    cost: str


def statement(tuning: Tuning | None, rows: list[Row], choices: list[Choice]) -> dict[str, Any]:
    """What was done, for the table and the report."""
    how, sentence = "none", "Nothing was tuned: settings are the methods' own and the recipe's."
    if tuning is None:
        if any(row.axes for row in rows):
            sentence = (
                "Nothing was chosen: every setting that was tried is in the table. "
                "To pick the best by these scores is a choice that nobody has paid for."
            )
    elif tuning.on == "public":
        how = "public"
        sentence = (
            f"Settings were chosen on {tuning.data}, which is public, by {tuning.by}; "
            "the private data was asked with the chosen ones alone."
        )
    else:
        how = "charged"
        sentence = (
            f"Settings were chosen on the private data by a noisy maximum, at epsilon {tuning.epsilon:g} "
            "for each choice, on top of what the candidates cost."
        )
    return {"how": how, "sentence": sentence, "choices": [asdict(choice) for choice in choices]}


def chosen_on_public(experiment: Experiment, tuning: Tuning, engine: Engine) -> tuple[list[Row], list[Choice]]:
    """The rows of the private data that are left to run."""
    shelf, rows = experiment.shelf, experiment.rows()
    if any(shelf.content(tuning.data) == shelf.content(row.cell.data) for row in rows):
        raise UsageError(
            "Expected public data to tune on, got the private data itself.",
            where=tuning.data,
            fix="name another data set, or tune on the private data and pay",
        )
    moved = {row: replace(row, cell=replace(row.cell, data=tuning.data)) for row in rows}
    jobs = {there: _trial(experiment, there, tuning) for there in moved.values()}
    list(engine(experiment.store.folder, list(jobs.values())))
    kept, choices = [], []
    for name, group in _groups(rows, repeats_together=True):
        found: dict[str, list[float]] = {}
        for row in group:
            score = experiment.store.cell(jobs[moved[row]].inputs).measures().get(tuning.by, {})
            if score.get("value") is not None:
                sign = 1 if score["higher_is_better"] else -1
                found.setdefault(_axes(row), []).append(sign * score["value"])
        if not found:
            raise DataError(f"No candidate of {name} could be judged on {tuning.data}.")
        means = {axes: fmean(values) for axes, values in found.items()}
        best = max(means, key=lambda axes: means[axes])
        kept += [row for row in group if _axes(row) == best]
        choices.append(Choice(name, best, {axes: abs(value) for axes, value in means.items()}, "nothing"))
    return kept, choices


def _trial(experiment: Experiment, row: Row, tuning: Tuning) -> CellJob:
    """A cell on the public data, filed separately from those whose data is private."""
    job = experiment.cell(row)
    return replace(job, inputs={**job.inputs, PUBLIC_TRIAL: True}, measures=(tuning.by,), students=())


def charged_choices(experiment: Experiment, tuning: Tuning) -> list[Choice]:
    """One for each group of releases that are there; the same call finds its old answers."""
    choices = []
    for name, group in _groups(experiment.rows(), repeats_together=False):
        stored = [experiment.stored(row) for row in group]
        if all(cell is not None and cell.release.exists() for cell in stored):
            choices.append(_charged(experiment, tuning, name, group, [cell for cell in stored if cell]))
    return choices


def _charged(experiment: Experiment, tuning: Tuning, name: str, group: list[Row], cells: list[Stored]) -> Choice:
    job = experiment.job(group[0])
    count = open_source(job.data, job.reading).spec.count
    budget = Budget.of(tuning.epsilon, count=count)
    inputs = {
        "data": group[0].cell.data,
        "data_content": experiment.shelf.content(group[0].cell.data),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "among": [cell.digest for cell in cells],
    }
    stored = experiment.store.choice(inputs)
    if not stored.has("chosen"):
        with stored.lab as lab:
            releases = [read_release(cell.release).images for cell in cells]
            students = []
            for row, cell, images in zip(group, cells, releases, strict=True):
                training = training_images(images)
                schedule = Schedule.short("small-cnn", soft=training.logits is not None)
                student = train(training, schedule, seed=0, what=_axes(row))
                students.append(Candidate(_axes(row), True, student, origin_of(cell.release, schedule, 0)))
            number = charged_choice(students, lab.folder, job.data, job.reading, releases[0], tuning.epsilon)
            stored.add("chosen", {"value": _axes(group[number])})
    return Choice(name, str(stored.measures()["chosen"]["value"]), {}, f"epsilon {tuning.epsilon:g}")


def _groups(rows: list[Row], *, repeats_together: bool) -> Iterator[tuple[str, list[Row]]]:
    """Rows that differ in nothing but the settings on trial; only the first student of a release is used."""
    groups: dict[tuple[Cell, str, str], list[Row]] = {}
    for row in rows:
        trial = {name for name, _ in row.axes}
        settings = tuple((name, value) for name, value in row.cell.settings if name not in trial)
        repeat = 0 if repeats_together else row.cell.repeat
        plain = replace(row.cell, settings=settings, repeat=repeat)
        groups.setdefault((plain, row.label, row.student.arch), []).append(row)
    for (cell, label, arch), group in groups.items():
        parts = (cell.method, f"epsilon {cell.epsilon:g}", label, arch, f"repeat {cell.repeat}" if cell.repeat else "")
        yield f"{cell.data}, {', '.join(filter(None, parts))}", group


def _axes(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.axes)
