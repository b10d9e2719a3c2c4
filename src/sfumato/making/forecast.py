"""What to expect of a release before it is made: what releases of public data sets were worth at a like signal.

The table beside this file is written by `benchmarks/releases.py RESULTS --forecast`. Only public facts are compared:
whether images are in colour, and the signal of a class, which is epsilon times its number of records.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato.privacy import Budget
from sfumato.values import Spec

TABLE = Path(__file__).with_name("forecast.csv")
STUDENTS = {  # kinds of students, as the benchmark names them
    "logits": "a small network",
    "fixed": "a linear student on the fixed features",
    "features": "a linear student on EfficientNet-Lite0",
}
FURTHEST = 2.0  # by this factor the signal may be outside of what was tried; beyond it nothing is said


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table: the mean accuracy of students of several releases of a public data set."""

    data: str
    colour: bool
    records: int
    classes: int
    epsilon: float
    student: str
    accuracy: float

    @property
    def signal(self) -> float:
        return self.epsilon * self.records / self.classes

    @property
    def gain(self) -> float:
        """How far the accuracy is from chance (0) to perfect (1), so that numbers of classes can be compared."""
        return (self.accuracy - 1 / self.classes) / (1 - 1 / self.classes)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The accuracy that students of such releases had, from the hardest to the easiest public data set."""

    student: str
    low: float
    high: float
    data: tuple[str, ...]

    def text(self) -> str:
        low, high = (round(100 * value) for value in (self.low, self.high))
        between = f"about {low} %" if low == high else f"{low} to {high} %"
        return f"{between} accuracy of {STUDENTS[self.student]}, if yours is like {' and '.join(self.data)}"


def measured(table: Path = TABLE) -> list[Measured]:
    with table.open(encoding="utf-8", newline="") as lines:
        return [
            Measured(
                data=row["data"],
                colour=row["colour"] == "yes",
                records=int(row["records"]),
                classes=int(row["classes"]),
                epsilon=float(row["epsilon"]),
                student=row["student"],
                accuracy=float(row["accuracy"]),
            )
            for row in csv.DictReader(lines)
        ]


def forecast(spec: Spec, budget: Budget, table: Iterable[Measured], *, lite0: bool = False) -> tuple[Forecast, ...]:
    """For each kind of student what to expect; nothing where no such data was tried."""
    if math.isinf(budget.epsilon) or len(spec.classes) < 2:
        return ()
    found: dict[str, dict[str, list[Measured]]] = {}
    for row in table:
        if row.colour == (spec.channels == 3) and (lite0 or row.student != "features"):
            found.setdefault(row.student, {}).setdefault(row.data, []).append(row)
    signal = budget.epsilon * spec.count / len(spec.classes)
    chance = 1 / len(spec.classes)
    made = []
    for student, by_data in found.items():
        gains = {data: gain for data, rows in by_data.items() if (gain := _gain(rows, signal)) is not None}
        if gains:
            low, high = (chance + (1 - chance) * value for value in (min(gains.values()), max(gains.values())))
            made.append(Forecast(student, low, high, tuple(gains)))
    return tuple(made)


def _gain(rows: list[Measured], signal: float) -> float | None:
    """Between the signals that were tried, linear in their logarithm."""
    ordered = sorted(rows, key=lambda row: row.signal)
    signals = [row.signal for row in ordered]
    if not signals[0] / FURTHEST <= signal <= signals[-1] * FURTHEST:
        return None
    return float(np.interp(math.log(signal), np.log(signals), [row.gain for row in ordered]))
