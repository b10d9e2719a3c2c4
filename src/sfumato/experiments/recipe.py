"""A recipe: one published table or figure as a TOML file that lists only what differs from a method's defaults."""

from __future__ import annotations

import functools
import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from sfumato import contracts
from sfumato.contracts import Metric, Synthesizer
from sfumato.errors import UsageError, printable
from sfumato.experiments.recipe_format import (
    Grid,
    Loss,
    MetricSettings,
    Mode,
    Profile,
    ProfileName,
    Recipe,
    Value,
    many,
    unknown,
)
from sfumato.making.settings import with_settings
from sfumato.networks import classifiers
from sfumato.privacy import Budget
from sfumato.values import Spec

TYPICAL = Spec(60_000, 1, 28, 28, tuple("0123456789"))  # to check settings before any data set is opened
OWN_MEASURES = ("student", "teacher", "losses")  # "losses": of each step; the others are metrics
ALL = "all"
T = TypeVar("T")
AXES = ("data", "method", "public", "epsilon", "arch", "label")


@dataclass(frozen=True, slots=True)
class StudentSetting:
    """One kind of student; its key is what its scores are filed under."""

    arch: str
    seeds: int
    schedule: Literal["short", "paper"]
    loss: Loss | None
    temperature: float | None

    @property
    def key(self) -> str:
        temperature = "" if self.temperature is None else f"-T{self.temperature:g}"
        return f"student-{self.arch}-{self.schedule}-{self.loss or 'default'}{temperature}-{self.seeds}seeds"


@dataclass(frozen=True, slots=True)
class Cell:
    """What a release is made from; data sets by name, so that a data folder may move."""

    method: str
    data: str
    public: str
    epsilon: float
    delta: float
    count: int | None
    size: int | None
    mode: Mode | None
    settings: tuple[tuple[str, Value], ...]
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a cell, one kind of student, and the settings that distinguish it from other lines."""

    cell: Cell
    student: StudentSetting
    label: str
    axes: tuple[tuple[str, Value], ...]
    defaults: tuple[tuple[str, Value], ...]

    @property
    def name(self) -> str:
        again = f"repeat {self.cell.repeat}" if self.cell.repeat else ""
        parts = [
            self.cell.method,
            f"epsilon {self.cell.epsilon:g}",
            self.label,
            *(f"{k} {v}" for k, v in self.axes),
            self.student.arch,
            again,
        ]
        return f"{self.cell.data} <- {self.cell.public or 'nothing'}, {', '.join(filter(None, parts))}"

    def fact(self, name: str) -> Value:
        """The value of an axis or of a setting, the method's default where the recipe has none."""
        known: dict[str, Value] = {
            "data": self.cell.data,
            "public": self.cell.public,
            "epsilon": self.cell.epsilon,
            "arch": self.student.arch,
            "label": self.label,
            "method": self.cell.method,
        }
        return {**dict(self.defaults), **dict(self.cell.settings), **known}.get(name, "")


@dataclass(frozen=True, slots=True)
class RecipeResult:
    """What a recipe gave, as a document for machines and as a text for people."""

    document: Any
    text: str


def read_recipe(path: Path | str) -> Recipe:
    """The recipe in a file, with everything checked that can be without data."""

    def read(document: dict[str, Any]) -> Recipe:
        recipe = Recipe.model_validate(document)
        _check(recipe)
        return recipe

    return read_file(Path(path), read)


def read_file(path: Path, read: Callable[[dict[str, Any]], T]) -> T:
    """What `read` makes of a TOML file; whatever is wrong with it is one sentence, with the place."""
    try:
        return read(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise UsageError(
            f"Expected a recipe that can be read, got: {error.strerror}.",
            where=path,
            fix="check its name and permissions",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Expected a recipe in TOML, got: {printable(error)}.", where=path, fix="mend this line"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] != "value_error":
            what = f"{what}, got {printable(first['input'])[:80]!r}."
        raise UsageError(what, where=f"{path}, {place}" if place else path) from error
    except UsageError as error:
        raise UsageError(error.what, where=path, fix=error.fix) from error


def rows_of(recipe: Recipe, profile: ProfileName) -> list[Row]:
    """The lines that a profile has, in the recipe's order."""
    if profile not in recipe.profiles:
        raise UsageError(
            f"Expected one of the recipe's profiles {', '.join(recipe.profiles)}; got {profile!r}.",
            fix="choose one of these",
        )
    common = recipe.profiles[profile]
    grids = [grid for grid in recipe.grid if grid.profile in (None, profile)]
    methods = [(grid, method) for grid in grids for method in _methods(grid.method or (recipe.method,))]
    return [row for grid, method in methods for row in _rows(method, common, grid)]


def _rows(method: str, common: Profile, grid: Grid) -> Iterator[Row]:
    learner = common.student
    many = [name for name, values in grid.set.items() if len(values) > 1]
    defaults = tuple(asdict(_typical(method, {})).items())  # type: ignore[call-overload]
    temperature = learner.temperature if grid.temperature is None else grid.temperature
    for data, public, epsilon, repeat in itertools.product(grid.data, grid.public, grid.epsilon, range(grid.repeats)):
        for chosen in itertools.product(*grid.set.values()):
            settings = common.set | dict(zip(grid.set, chosen, strict=True))
            cell = Cell(
                method,
                data,
                public,
                epsilon,
                grid.delta,
                grid.count or common.count,
                common.size,
                common.mode,
                tuple(settings.items()),
                repeat,
            )
            for arch in grid.arch or learner.arch:
                student = StudentSetting(arch, learner.seeds, learner.schedule, learner.loss, temperature)
                yield Row(cell, student, grid.label, tuple((n, settings[n]) for n in many), defaults)


def metric_with(name: str, settings: MetricSettings) -> Metric:
    """The metric of that name with these settings; those that it does not have are refused."""
    metric: Any = contracts.find("metrics", name)()
    known = [field.name for field in fields(metric)]
    for setting in settings:
        if setting not in known:
            raise UsageError(unknown(f"setting of {name}", setting, known))
    values = {setting: tuple(value) if isinstance(value, list) else value for setting, value in settings.items()}
    changed: Metric = replace(metric, **values)
    return changed


def measure_key(name: str, settings: MetricSettings) -> str:
    """The name that a judgement is filed under: with its settings, if it has some of its own."""
    texts = [f"{setting} {'+'.join(map(str, many(value)))}" for setting, value in settings.items()]
    return f"{name} ({', '.join(texts)})" if texts else name


def written(value: Value) -> str:
    """A setting as a user writes it on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def _methods(named: tuple[str, ...]) -> tuple[str, ...]:
    """The methods of a grid; `all` are those that need no public images, so that a new method is in the table."""
    if named != (ALL,):
        return named
    return tuple(name for name in contracts.names("methods") if _plain(name).public_images != "needed")


def _plain(method: str) -> Synthesizer:
    return contracts.find("methods", method).for_task(TYPICAL, Budget(1.0, 1e-6))  # type: ignore[no-any-return]


def _typical(method: str, settings: dict[str, Value]) -> Synthesizer:
    plain = _plain(method)
    known = list(asdict(plain))  # type: ignore[call-overload]
    for name in settings:
        if name not in known:
            raise UsageError(unknown(f"setting of {method}", name, known))
    return with_settings(plain, {name: written(value) for name, value in settings.items()})


def _check(recipe: Recipe) -> None:
    """Everything that can be wrong with a recipe and be seen without data."""
    methods = {method for grid in recipe.grid for method in _methods(grid.method or ())} | {recipe.method}
    _check_names("method", methods, contracts.names("methods"))
    settings = {name for method in methods for name in asdict(_typical(method, {}))}  # type: ignore[call-overload]
    _check_names("measure", recipe.measure, (*OWN_MEASURES, *contracts.names("metrics")))
    _check_names("reported column", recipe.reported.columns, ("by", "value", "error", *AXES, *settings))
    if recipe.tuning and not any(len(values) > 1 for grid in recipe.grid for values in grid.set.values()):
        raise UsageError(
            "Expected a list of settings to choose from, in the set of a [[grid]], got none.",
            fix="give a list there, or leave [tuning] out",
        )
    if not recipe.grid and recipe.show != "toy":
        raise UsageError("Expected at least one [[grid]] in the recipe, got none.", fix="add one")
    for name, profile in recipe.profiles.items():
        for metric in profile.metrics:
            _check_names("metric with settings", (metric,), recipe.measure)
            metric_with(metric, profile.metrics[metric])
        for row in rows_of(recipe, name):
            _check_row(row)


def _check_names(kind: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    known = tuple(allowed)
    for name in names:
        if name not in known:
            raise UsageError(unknown(kind, name, known))


def _check_row(row: Row) -> None:
    if _typical(row.cell.method, dict(row.cell.settings)).public_images == "needed" and not row.cell.public:
        raise UsageError(f"Expected public images for {row.name}.", fix="add public = ... to its [[grid]]")
    classifiers.check(row.student.arch)
    if row.student.seeds < 1 or math.isnan(row.cell.epsilon) or row.cell.epsilon <= 0:
        raise UsageError(
            f"Expected epsilon above 0 and at least one seed, got {row.cell.epsilon:g} and {row.student.seeds}.",
            fix="mend its [[grid]] or the student of its profile",
        )
