"""The figures of the report: each with its data as CSV and a sentence on what it shows."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato.errors import printable
from sfumato.experiments.table import PERCENT
from sfumato.report.charts import Axis, Bar, Point, Series, bars, legend, lines, scatter
from sfumato.report.leaderboard import Leaderboard, Line, duration, memory, number, shown

MOST_BARS, MOST_CHARTS = 40, 8  # in a chart, and charts side by side
GROUPED = ("per_class", "groups", "estimated_shares")  # keys of details with a number for each class or group
GROUP_LABELS = {"per_class": "class", "groups": "group", "estimated_shares": "group (share of the release)"}
EPSILON = Axis("epsilon (logarithmic)", log=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, what it shows, and the numbers behind it."""

    name: str  # of its file of data
    title: str
    sentence: str
    svg: str
    legend: str
    csv: str


@dataclass(frozen=True, slots=True)
class Reported:
    """A number from the literature."""

    by: str
    measure: str
    data: str
    method: str
    epsilon: float
    value: float
    arch: str = ""

    def fits(self, measure: str) -> bool:
        """Whether it stands for the same measure; a student's name begins with its architecture."""
        if self.measure == "student":
            return measure.startswith(f"student-{self.arch}" if self.arch else "student")
        return measure == self.measure


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows for machines; a name that a spreadsheet would take for a formula is quoted."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in row])
    return written.getvalue()


def _harmless(text: str) -> str:
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def read_reported(store: Path) -> list[Reported]:
    """What the tables of the store have from the literature, each number once; unreadable tables are skipped."""
    found: dict[Reported, None] = {}
    for path in sorted((store / "tables").glob("*/table.json")):
        try:
            document = json.loads(path.read_text("utf-8"))
            found |= dict.fromkeys(_reported(document))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return list(found)


def _reported(document: dict[str, Any]) -> Iterator[Reported]:
    measure = str(document["reported"]["measure"])
    beside = [
        {
            **row["axes"],
            "data": row["data"],
            "epsilon": row["epsilon"],
            "value": row["reported"],
            "by": "the paper",
            "arch": row["student"],
            "method": row["axes"].get("method") or _method(str(row["cell"])),
        }
        for row in document["rows"]
        if row.get("reported") is not None
    ]
    for row in (*beside, *document["reported"]["rows"]):
        value, epsilon = number(row["value"]), row.get("epsilon")
        if value is None or not isinstance(epsilon, int | float):
            continue
        value = value / 100 if measure in PERCENT or (measure == "gen2real" and value > 1) else value
        by = "the paper" if row["by"] == "paper" else str(row["by"])
        data = re.sub(r" \(stands in for .*\)$", "", str(row.get("data", "")))
        yield Reported(by, measure, data, str(row.get("method", "")), float(epsilon), value, str(row.get("arch", "")))


def _method(cell: str) -> str:
    """From a cell's name, where the table has no column for it."""
    found = re.search(r" <- .*?, (.+?), epsilon ", cell)
    return found[1] if found else ""


@dataclass(frozen=True)
class Plots:
    """Figures of one leaderboard; a method has the same colour and shape in all of them."""

    leaderboard: Leaderboard
    reported: Sequence[Reported] = ()

    @functools.cached_property
    def styles(self) -> dict[str, int]:
        return {method: place for place, method in enumerate(sorted({line.method for line in self.leaderboard.lines}))}

    def datasets(self) -> list[str]:
        return list(dict.fromkeys(line.data for line in self.leaderboard.lines))

    def accuracy(self, data: str) -> list[Figure]:
        """Every accuracy against epsilon, the first one first."""
        figures = [self._accuracy(data, measure) for measure in self.leaderboard.accuracies]
        return [figure for figure in figures if figure is not None]

    def _accuracy(self, data: str, measure: str) -> Figure | None:
        ours = self._with(data, measure)
        if not ours:
            return None
        variants: dict[tuple[str, str, str], list[Line]] = {}
        for line in ours:
            variants.setdefault((line.method, line.public, line.settings), []).append(line)
        series = [
            Series(
                key[0],
                [_point(line, line.epsilon, measure) for line in found],
                self.styles[key[0]],
                dashed=bool(key[1]),
            )
            for key, found in sorted(variants.items())
        ]
        theirs = [
            reported
            for reported in self.reported
            if reported.data == ours[0].cells[0].inputs["data"] and reported.fits(measure)
        ]
        series += [self._hollow(reported) for reported in theirs]
        rows = [
            (
                "measured",
                line.method,
                line.public,
                line.settings,
                line.epsilon,
                line.means[measure].value,
                line.means[measure].error,
                line.means[measure].repeats,
            )
            for line in ours
        ]
        rows += [
            (f"reported by {reported.by}", reported.method, "", "", reported.epsilon, reported.value, None, 0)
            for reported in theirs
        ]
        title = f"{measure} against epsilon"
        also = " Dashed lines are methods that use public data." if any(line.public for line in ours) else ""
        also += " Hollow marks are numbers that others report." if theirs else ""
        best = max(ours, key=lambda line: line.means[measure].value)
        highest = f"the highest mean is {best.means[measure].shown}, of {best.name}"
        label = f"{title} on {data}: {len(variants)} lines; {highest}."
        return Figure(
            f"accuracy {measure} {data}",
            title,
            f"Means over repeats with their standard errors.{also}",
            lines(series, x=EPSILON, y=Axis("accuracy", low=0.0), label=label),
            legend(series),
            csv_text(("by", "method", "public", "settings", "epsilon", measure, "standard_error", "repeats"), rows),
        )

    def _hollow(self, reported: Reported) -> Series:
        what = f"{reported.method or 'a method'}, epsilon {reported.epsilon:g}, {shown(reported.value)}"
        note = f"reported by {reported.by}: {what}"
        label = f"{reported.method or reported.by}, reported"
        style = self.styles.get(reported.method, 7)
        return Series(label, [Point(reported.epsilon, reported.value, note=note)], style, hollow=True)

    def against(self, data: str, kind: str) -> list[Figure]:
        """Utility against every judgement of a kind."""
        utility = next(iter(self.leaderboard.accuracies), None)
        if utility is None:
            return []
        found = [self._against(data, measure, utility) for measure in self.leaderboard.judging(kind)]
        return [figure for figure in found if figure is not None]

    def _against(self, data: str, measure: str, utility: str) -> Figure | None:
        ours = [line for line in self._with(data, measure) if utility in line.means]
        if not ours:
            return None
        of_method: dict[str, list[Point]] = {}
        for line in ours:
            of_method.setdefault(line.method, []).append(_point(line, line.means[measure].value, utility))
        series = [Series(method, points, self.styles[method]) for method, points in sorted(of_method.items())]
        direction = self.leaderboard.better.get(measure)
        x = Axis(f"{measure}" + (f" ({direction} is better)" if direction else ""))
        title = f"{utility} against {measure}"
        rows = [
            (
                line.method,
                line.public,
                line.settings,
                line.epsilon,
                line.means[measure].value,
                line.means[measure].error,
                line.means[utility].value,
                line.means[utility].error,
            )
            for line in ours
        ]
        head = (
            "method",
            "public",
            "settings",
            "epsilon",
            measure,
            f"{measure} standard error",
            utility,
            f"{utility} standard error",
        )
        sentence = f"One mark for each line of the table. The best corner is the upper {_corner(direction)} one."
        label = f"{title} on {data}: {len(ours)} marks of {len(series)} methods."
        svg = scatter(series, x=x, y=Axis(utility), label=label)
        return Figure(f"{measure} {utility} {data}", title, sentence, svg, legend(series), csv_text(head, rows))

    def grouped(self, data: str) -> list[tuple[str, float, list[Figure]]]:
        """Bars by class and by group, under a title for each epsilon; as many methods as fit side by side."""
        found: dict[tuple[str, float], list[Figure]] = {}
        for line in (line for line in self.leaderboard.lines if line.data == data):
            for measure in line.means:
                for key in GROUPED:
                    values = line.detail(measure, key)
                    title = f"{measure} by {GROUP_LABELS[key]}", line.epsilon
                    if values and len(found.get(title, ())) < MOST_CHARTS:
                        found.setdefault(title, []).append(_bars(line, measure, key, values))
        return [(title, epsilon, found[title, epsilon]) for title, epsilon in sorted(found)]

    def cost(self, data: str) -> list[Figure]:
        """Time and memory of making a release, by method."""
        wanted: list[tuple[str, str, Callable[[float], str]]] = [
            ("seconds", "Time to make a release", duration),
            ("peak_mb", "Peak memory of making a release", memory),
        ]
        return [figure for name, title, text in wanted if (figure := self._cost(data, name, title, text))]

    def _cost(self, data: str, name: str, title: str, text: Callable[[float], str]) -> Figure | None:
        of_method: dict[str, list[float]] = {}
        for line in self.leaderboard.lines:
            known_of_cells = [number(cell.made.get(name)) for cell in line.cells] if line.data == data else []
            if known := [value for value in known_of_cells if value is not None]:
                of_method.setdefault(line.method, []).extend(known)
        means = {method: sum(values) / len(values) for method, values in of_method.items()}
        if not means:
            return None
        unit = "seconds" if name == "seconds" else "MB"
        chart = [Bar(printable(method), value) for method, value in means.items()]
        label = f"{title} on {data}: " + ", ".join(f"{method} {text(value)}" for method, value in means.items())
        rows = [(method, means[method], len(values)) for method, values in of_method.items()]
        return Figure(
            f"{name} {data}",
            f"{title} ({unit})",
            "Mean over all cells of the method.",
            bars(chart, label=label, most=max(max(means.values()), 1e-9), digits=".4g"),
            "",
            csv_text(("method", name, "cells"), rows),
        )

    def _with(self, data: str, measure: str) -> list[Line]:
        return [line for line in self.leaderboard.lines if line.data == data and measure in line.means]


def _point(line: Line, x: float, measure: str) -> Point:
    mean = line.means[measure]
    facts = ", ".join(filter(None, (line.name, f"epsilon {line.epsilon:g}", line.settings)))
    return Point(x, mean.value, mean.error, f"{facts}: {mean.shown}")


def _corner(direction: str | None) -> str:
    return "left" if direction == "lower" else "right"


def _bars(line: Line, measure: str, key: str, values: dict[str, float]) -> Figure:
    title = ", ".join(filter(None, (line.name, line.settings)))
    where = f"{title}, epsilon {line.epsilon:g}, {line.cells[0].digest}"
    figure = class_bars(measure, key, values, marks=line.detail(measure, "real_shares"), where=where)
    return replace(figure, title=title, sentence=f"{line.data}, epsilon {line.epsilon:g}. {figure.sentence}")


def class_bars(measure: str, key: str, values: dict[str, float], *, marks: dict[str, float], where: str) -> Figure:
    """A bar for each class or group."""
    some = list(values.items())[:MOST_BARS]
    most = 1.0 if max(values.values()) <= 1 else max(values.values())
    marks = marks if key == "estimated_shares" else {}
    chart = [Bar(printable(name), value, mark=marks.get(name)) for name, value in some]
    title, (low, high) = f"{measure} by {GROUP_LABELS[key]}", (min(values.values()), max(values.values()))
    fewer = f"The first {MOST_BARS} of {len(values)}." if len(values) > MOST_BARS else f"From {low:.3g} to {high:.3g}."
    label = f"{title}, {where}: from {low:.3g} to {high:.3g}"
    svg = bars(chart, label=label, most=most, mark_means="share of the real images" if marks else "")
    return Figure(
        f"{measure} {key} {where}", title, fewer, svg, "", csv_text((GROUP_LABELS[key], measure), values.items())
    )


def curve_of_delta(profile: Sequence[tuple[float, float]], *, epsilon: float, delta: float) -> Figure:
    """delta(epsilon) of one release: all pairs that hold at once, and the one that it is announced with."""
    points = [Point(e, d, note=f"epsilon {e:.4g}, delta {d:.3g}") for e, d in profile if d > 0]
    claim = [Point(epsilon, delta, note=f"announced: epsilon {epsilon:.4g}, delta {delta:g}")] if delta > 0 else []
    series = [Series("all pairs hold", points, 0), Series("announced", claim, 1)]
    label = (
        f"The privacy curve: delta falls from {max((d for _, d in profile), default=math.nan):.3g} as epsilon grows."
    )
    svg = lines(series, x=Axis("epsilon", low=0.0), y=Axis("delta (logarithmic)", log=True), label=label)
    sentence = "Each point is a guarantee of this release: with that epsilon, except with probability delta."
    return Figure(
        "curve", "The curve delta(epsilon)", sentence, svg, legend(series), csv_text(("epsilon", "delta"), profile)
    )
