"""The contents of a store by cell and by line: repeats of one cell are a line, with means and their errors."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.errors import SfumatoError, printable
from sfumato.experiments.cell import MADE
from sfumato.lab.folder import Lab
from sfumato.lab.scores import read_scores
from sfumato.lab.store import PUBLIC_TRIAL, Store, Stored
from sfumato.release import Certificate, read_image_certificate
from sfumato.values import LEVELS

FIRST = ("gen2real", "student", "teacher", "fid", "attack-", "nearest")  # how columns are ordered
ACCURACIES = ("gen2real", "student", "teacher")  # measures that are shares of right answers

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """One finished cell."""

    digest: str
    folder: Path
    inputs: Document
    made: Document  # what its release cost
    scores: dict[str, Document]  # by the names that they give themselves
    certificate: Certificate

    @property
    def level(self) -> str:
        """Of two statements the weaker; one that is not known counts as none."""
        levels = (self.certificate.guarantee.level, self.made.get("guarantee", LEVELS[0]))
        return max((level if level in LEVELS else LEVELS[-1] for level in levels), key=LEVELS.index)

    @property
    def settings(self) -> dict[str, str]:
        """As in the recipe: without the seed of a repeat, which does not make it another line."""
        settings = {str(name): str(value) for name, value in dict(self.inputs.get("settings") or {}).items()}
        seed = settings.pop("seed", "0")
        base = str(int(seed) - int(self.inputs.get("repeat") or 0)) if seed.lstrip("-").isdigit() else seed
        return settings if base == "0" else {**settings, "seed": base}


@dataclass(frozen=True, slots=True)
class Mean:
    """Of a measure over repeats; the error of a single one is the measure's own."""

    value: float
    error: float | None
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float], own: float | None = None) -> Mean:
        if len(values) == 1:
            return cls(values[0], own, 1)
        return cls(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)), len(values))

    @property
    def shown(self) -> str:
        return shown(self.value) + ("" if self.error is None else f" ± {shown(self.error, like=self.value)}")


@dataclass(frozen=True, slots=True)
class Line:
    """Cells that differ by chance alone."""

    data: str
    method: str
    public: str
    epsilon: float
    settings: str
    level: str
    cells: tuple[Seen, ...]
    means: dict[str, Mean]
    seconds: Mean | None
    peak_mb: Mean | None

    @property
    def name(self) -> str:
        return " + ".join(filter(None, (self.method, self.public)))

    def detail(self, measure: str, key: str) -> dict[str, float]:
        """The mean over repeats of a measure's numbers by class or by group."""
        found: dict[str, list[float]] = {}
        for cell in self.cells:
            for name, value in numbers_by_name(cell.scores.get(measure, {}), key).items():
                found.setdefault(name, []).append(value)
        return {name: statistics.fmean(values) for name, values in found.items()}


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """A store as the pages show it."""

    lines: tuple[Line, ...]
    measures: tuple[str, ...]
    judges: dict[str, str]
    better: dict[str, str]  # "higher" or "lower" by measure; no entry where it is unknown
    common: str  # what all lines have in common
    unfinished: int
    problems: dict[str, str] = field(default_factory=dict)  # by digest, why a cell is left out

    @property
    def cells(self) -> list[Seen]:
        return [cell for line in self.lines for cell in line.cells]

    def judging(self, kind: str) -> list[str]:
        return [name for name in self.measures if self.judges.get(name) == kind]

    @property
    def accuracies(self) -> list[str]:
        return [name for name in self.measures if name.startswith(ACCURACIES)]


def read_leaderboard(folder: Path) -> Leaderboard:
    """Every finished cell; one that cannot be read is named and does not stop the others."""
    cells, problems, unfinished = [], {}, 0
    for stored in Store(folder).cells():
        try:
            if not (stored.release / "certificate.json").exists():
                unfinished += 1
                continue
            cells.append(_seen(stored))
        except (SfumatoError, TypeError, ValueError, KeyError, AttributeError) as error:
            what = (
                error.what if isinstance(error, SfumatoError) else "Expected a cell of the store, got something else."
            )
            problems[stored.digest] = what
    scores = [score for cell in cells for score in cell.scores.items()]
    judges = {name: str(score.get("judges") or _judges(name)) for name, score in scores}
    better = {
        name: "higher" if score["higher_is_better"] else "lower"
        for name, score in scores
        if score.get("higher_is_better") is not None
    }
    measures = tuple(sorted(judges, key=lambda name: (_rank(name), name)))
    common = _common(cells)
    lines = tuple(_lines(cells, measures, common))
    return Leaderboard(lines, measures, judges, better, printable(", ".join(common)), unfinished, problems)


def _seen(stored: Stored) -> Seen:
    inputs, measures = stored.inputs(), stored.measures()
    inputs = {**inputs, "epsilon": float(inputs["epsilon"]), "data": str(inputs["data"])}
    lab = Lab.beside(stored.release).folder
    # Attacks are made on a release and not by a recipe: they are in its lab.
    rows = read_scores(lab)["scores"]
    others = {
        str(row["score"]): _of_row(row, rows)
        for row in rows
        if not row.get("part_of") and number(row.get("value")) is not None
    }
    own = {
        str(score.get("name") or name): score
        for name, score in measures.items()
        if name != MADE and number(score.get("value")) is not None
    }
    return Seen(
        stored.digest,
        stored.folder,
        inputs,
        measures.get(MADE, {}),
        {**others, **own},
        read_image_certificate(stored.release),
    )


def _of_row(row: Document, rows: Iterable[Document]) -> Document:
    parts = [{**part, "name": part["score"]} for part in rows if part.get("part_of") == row["score"]]
    return {**row, "name": row["score"], "higher_is_better": row.get("better") == "higher", "parts": parts}


def _lines(cells: Sequence[Seen], measures: Sequence[str], common: Sequence[str]) -> Iterator[Line]:
    alike: dict[str, list[Seen]] = {}
    for cell in cells:
        key = {**cell.inputs, "settings": cell.settings, "repeat": 0}
        alike.setdefault(json.dumps(key, sort_keys=True, default=str), []).append(cell)
    names = _names(cells)
    lines = [_line(group, names, measures, common) for group in alike.values()]
    main = next(iter(measures), "")

    def order(line: Line) -> tuple[Any, ...]:
        mean = line.means.get(main)
        return line.data, line.epsilon, -mean.value if mean else math.inf, line.name, line.settings

    yield from sorted(lines, key=order)


def _line(group: list[Seen], names: Mapping[str, str], measures: Sequence[str], common: Sequence[str]) -> Line:
    group = sorted(group, key=lambda cell: int(cell.inputs.get("repeat") or 0))
    inputs = group[0].inputs
    means = {}
    for name in measures:
        scores = [cell.scores[name] for cell in group if name in cell.scores]
        if scores:
            means[name] = Mean.of([float(s["value"]) for s in scores], number(scores[0].get("standard_error")))
    level = max((cell.level for cell in group), key=LEVELS.index)
    settings = printable(", ".join(fact for fact in _facts(group[0]) if fact not in common))
    return Line(
        names[group[0].digest],
        str(inputs["method"]),
        str(inputs.get("public") or ""),
        inputs["epsilon"],
        settings,
        level,
        tuple(group),
        means,
        _cost(group, "seconds"),
        _cost(group, "peak_mb"),
    )


def _names(cells: Sequence[Seen]) -> dict[str, str]:
    """The cells' data sets by name; where two have the same name, with a part of their digests."""
    contents: dict[str, set[str]] = {}
    for cell in cells:
        contents.setdefault(cell.inputs["data"], set()).add(str(cell.inputs.get("data_content")))
    many = {name for name, different in contents.items() if len(different) > 1}
    return {
        cell.digest: printable(cell.inputs["data"])
        + (f" ({str(cell.inputs.get('data_content'))[:8]})" if cell.inputs["data"] in many else "")
        for cell in cells
    }


def _facts(cell: Seen) -> list[str]:
    """The settings that, beside data, method and epsilon, define a line."""
    inputs = cell.inputs
    facts = [f"{name}={value}" for name, value in sorted(cell.settings.items())]
    facts += [f"{name} {inputs[name]}" for name in ("count", "size", "mode", "sfumato") if inputs.get(name) is not None]
    facts += ["a trial on public data"] if inputs.get(PUBLIC_TRIAL) else []
    return facts if inputs.get("delta") is None else [*facts, f"delta {inputs['delta']:g}"]


def _common(cells: Sequence[Seen]) -> list[str]:
    """Settings that all lines have in common, and are shown only once."""
    everyone = [_facts(cell) for cell in cells]
    return [fact for fact in everyone[0] if all(fact in facts for facts in everyone)] if everyone else []


def _cost(group: Iterable[Seen], name: str) -> Mean | None:
    known = [value for cell in group if (value := number(cell.made.get(name))) is not None]
    return Mean.of(known) if known else None


def _judges(name: str) -> str:
    return "utility" if name.startswith(ACCURACIES) else "privacy" if name.startswith("attack-") else ""


def _rank(name: str) -> int:
    return next((place for place, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))


def numbers_by_name(score: Document, key: str) -> dict[str, float]:
    """The numbers in the details of a score for each class, or for each group."""
    details = score.get("details")
    found = details.get(key) if isinstance(details, dict) else None
    named = found.items() if isinstance(found, dict) else ()
    return {str(name): value for name, given in named if (value := number(given)) is not None}


def number(value: object) -> float | None:
    """A finite number, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def shown(value: float, *, like: float | None = None) -> str:
    """As many digits as matter; an error has those of its value."""
    size = abs(value if like is None else like)
    return (
        f"{value:.0f}"
        if size >= 1000
        else f"{value:.1f}"
        if size >= 100
        else f"{value:.2f}"
        if size >= 10
        else (f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.2g}")
    )


def duration(seconds: float) -> str:
    return (
        f"{seconds:.2g} s"
        if seconds < 10
        else f"{seconds:.0f} s"
        if seconds < 100
        else (f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h")
    )


def memory(megabytes: float) -> str:
    return f"{megabytes:.0f} MB" if megabytes < 1000 else f"{megabytes / 1024:.1f} GB"
