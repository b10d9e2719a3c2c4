"""What a recipe of a study may contain, and the cells that it stands for.

A study trains classifiers with and without privacy and measures each; a recipe that says `study = ...` is one. It
releases nothing: all that it writes is lab material.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sfumato.errors import UsageError
from sfumato.experiments.recipe import read_file
from sfumato.experiments.recipe_format import Entry, Names, Numbers, ProfileName, Strict, Value, entry, many, unknown
from sfumato.learners.dp_sgd import DPSGD
from sfumato.training.plain import PlainTraining
from sfumato.training.techniques import TECHNIQUES, switched_on

Kind = Literal["techniques", "memorisation", "grid", "outliers"]
Measure = Literal[
    "accuracy",
    "bias",
    "auc-loss-threshold",
    "auc-modified-entropy",
    "auc-attack-mlp",
    "auc-attack-forest",
    "auc",
    "tpr",
    "harmonic",
]
ALL_MEASURES: tuple[Measure, ...] = (
    "accuracy",
    "bias",
    "auc-loss-threshold",
    "auc-modified-entropy",
    "auc-attack-mlp",
    "auc-attack-forest",
    "tpr",
    "harmonic",
)
BASELINE = "none"
EVERYTHING = ",".join(TECHNIQUES)
CUMULATIVE = (BASELINE, *itertools.accumulate(TECHNIQUES, lambda before, name: f"{before},{name}"))
SINGLE = (BASELINE, *TECHNIQUES)
PLANS = {"cumulative": CUMULATIVE, "single": SINGLE, "all": (EVERYTHING,)}  # what a grid may say in place of a list


class StudyEntry(Entry):
    """Where a data set lies; `group` is the column of a protected attribute, where colour is none."""

    group: str | None = None


class StudyProfile(Strict):
    """How much is trained and measured; `private` are settings of the learner dp-sgd, `plain` those without privacy."""

    records: int = Field(ge=20)  # that train a classifier, drawn from the training split by a fixed seed
    candidates: int = Field(ge=8)  # members, and as many others, that the attacks judge
    seeds: int = Field(ge=1)
    size: int | None = None  # side of the images in pixels; None: as they are
    delta: float = Field(default=1e-5, gt=0, lt=1)
    private: dict[str, Value] = Field(default_factory=dict)
    plain: dict[str, Value] = Field(default_factory=dict)
    checkpoints: int = Field(default=10, ge=2)  # of a curve over training time
    rounds: int = Field(default=3, ge=1)  # of removal
    removed: int = Field(default=100, ge=1)  # records in each of them


class StudyGrid(Strict):
    """A product of lists; epsilon inf stands for training without privacy."""

    data: Names
    epsilon: Numbers
    techniques: Names = (BASELINE,)
    set: dict[str, Value] = Field(default_factory=dict)  # settings of its runs, on top of the profile's
    profile: ProfileName | None = None  # None: in both


class Study(Strict):
    """One figure of a study."""

    study: Kind
    title: str
    source: str
    profiles: dict[ProfileName, StudyProfile]
    note: str = ""
    measure: Annotated[tuple[Measure, ...], BeforeValidator(many)] = ALL_MEASURES
    data: dict[str, Annotated[StudyEntry, BeforeValidator(entry)]] = Field(default_factory=dict)
    grid: Annotated[tuple[StudyGrid, ...], BeforeValidator(many)]


@dataclass(frozen=True, slots=True)
class Condition:
    """What is trained on, and how; runs of it differ by their seed alone."""

    data: str
    epsilon: float  # inf: without privacy
    techniques: str
    settings: tuple[tuple[str, Value], ...] = ()  # on top of the profile's

    @property
    def private(self) -> bool:
        return not math.isinf(self.epsilon)

    @property
    def arm(self) -> str:
        return f"epsilon {self.epsilon:g}" if self.private else "not private"

    @property
    def name(self) -> str:
        own = "".join(f", {name} {value}" for name, value in self.settings)
        return f"{self.data}, {self.arm}, {self.techniques.replace(',', '+')}{own}"


def read_study(path: Path) -> Study:
    """The study in a file, with everything checked that can be without data."""

    def read(document: dict[str, Any]) -> Study:
        study = Study.model_validate(document)
        for name, profile in study.profiles.items():
            for condition in conditions_of(study, name):
                _check(condition, profile)
        return study

    return read_file(path, read)


def is_study(path: Path) -> bool:
    """Whether a recipe is a study; one that cannot be read is none, and is refused where it is read as a recipe."""
    try:
        return "study" in tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False


def settings_of(profile: StudyProfile, condition: Condition, seed: int) -> DPSGD | PlainTraining:
    """How a classifier of a condition is trained."""
    chosen: dict[str, Any] = {**(profile.private if condition.private else profile.plain), **dict(condition.settings)}
    kind = DPSGD if condition.private else PlainTraining
    known = {field.name for field in fields(kind)} - {"techniques", "seed"}  # these are the recipe's axes
    for name in chosen:
        if name not in known:
            raise UsageError(unknown(f"setting of {'dp-sgd' if condition.private else 'plain'} training", name, known))
    return kind(**chosen, techniques=condition.techniques, seed=seed)


def conditions_of(study: Study, profile: ProfileName) -> list[Condition]:
    """The conditions that a profile has, each once, in the recipe's order."""
    return list(dict.fromkeys(_conditions(study, profile)))


def _conditions(study: Study, profile: ProfileName) -> Iterator[Condition]:
    for grid in study.grid:
        if grid.profile not in (None, profile):
            continue
        techniques = [one for named in grid.techniques for one in PLANS.get(named, (named,))]
        for data, epsilon, chosen in itertools.product(grid.data, grid.epsilon, techniques):
            yield Condition(data, epsilon, _in_order(chosen), tuple(grid.set.items()))


def _check(condition: Condition, profile: StudyProfile) -> None:
    if not condition.epsilon > 0:
        raise UsageError(
            f"Expected epsilon above 0, or inf for training without privacy; got {condition.epsilon:g}.",
            fix="mend its [[grid]]",
        )
    try:
        settings_of(profile, condition, 0)
    except TypeError as error:
        raise UsageError(f"Expected numbers and words as settings, got: {error}.", fix="mend its profile") from error


def _in_order(techniques: str) -> str:
    """The same set is written in one way, so that it is trained once."""
    on = switched_on(techniques)
    return ",".join(name for name in TECHNIQUES if name in on) or BASELINE
