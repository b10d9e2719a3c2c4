"""A recipe: one published table or figure as a TOML file that says only what differs from a method's defaults."""

from __future__ import annotations

import functools
import itertools
import math
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from sfumato import contracts
from sfumato.bench.run import with_settings
from sfumato.contracts import Synthesizer
from sfumato.errors import UsageError, printable
from sfumato.networks import classifiers
from sfumato.privacy import Budget
from sfumato.values import Spec

ProfileName = Literal["small", "paper"]
Value = bool | int | float | str
TYPICAL = Spec(60_000, 1, 28, 28, tuple("0123456789"))  # to check settings before any data set is looked for
OWN_MEASURES = ("student", "teacher", "diary")  # the others are metrics
AXES = ("data", "method", "public", "epsilon", "arch", "label")


def _many(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _entry(value: Any) -> Any:
    return value if isinstance(value, dict) else {"files": value}


Names = Annotated[tuple[str, ...], BeforeValidator(_many)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_many)]
Values = Annotated[tuple[Value, ...], BeforeValidator(_many)]
Loss = Literal["logits", "kl", "labels"]
Mode = Literal["grey", "colour"]


class Strict(BaseModel):
    """A part of a recipe: exact types, and a key that is not known is an error that names the nearest one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(unknown("key", name, cls.model_fields))
        return value


class Entry(Strict):
    """Where a data set lies in the data folder, and how it is read."""

    files: Names
    label: str | None = None
    size: int | None = None
    mode: Mode | None = None
    stands_for: str | None = None  # the data set that the published table has in this place


class Learner(Strict):
    """The students of a release."""

    arch: Names = ("small-cnn",)
    seeds: int = 3
    schedule: Literal["short", "paper"] = "short"
    loss: Loss | None = None
    temperature: float | None = None


class Profile(Strict):
    """What the cells of a profile have in common; size and mode are for private data whose entry has none."""

    student: Learner = Learner()
    count: int | None = None
    size: int | None = None
    mode: Mode | None = None
    set: dict[str, Value] = {}


class Grid(Strict):
    """A product of lists; of a key that the profile has too, this one counts."""

    data: Names
    epsilon: Numbers
    method: Names | None = None  # None: the recipe's
    repeats: int = 1  # releases that differ by chance alone: fresh noise, another seed
    profile: ProfileName | None = None  # None: in both
    public: Names = ("",)  # "": none
    arch: Names | None = None
    label: str = ""
    delta: float = 1e-5
    count: int | None = None
    temperature: float | None = None
    set: dict[str, Values] = {}


class Tuning(Strict):
    """How one of the settings that a grid lists is chosen."""

    on: Literal["public", "private"]
    data: str = ""  # the public data; it should be like the private data
    by: str = "gen2real"  # the metric that decides there
    epsilon: float = 0.1  # of each choice on the private data

    @model_validator(mode="after")
    def _data_where_it_is_public(self) -> Self:
        if (self.on == "public") != bool(self.data):
            raise ValueError("Expected data = ... in [tuning] where it is on public data, and there alone.")
        if self.by not in (known := contracts.names("metrics")):
            raise ValueError(unknown("metric", self.by, known))
        if not self.epsilon > 0:
            raise ValueError(f"Expected an epsilon above 0 in [tuning], got {self.epsilon}.")
        return self


class Reported(Strict):
    """Numbers from the literature; those by "paper" go beside the cell whose axes they name."""

    measure: str = "student"
    columns: Names = ("by", "value")
    rows: list[list[Value]] = []

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if not {"by", "value"} <= set(self.columns):
            raise ValueError("Expected the columns by and value among the reported ones.")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Expected {len(self.columns)} values in a reported row, got {row}.")
        return self

    def documents(self) -> list[dict[str, Value]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Recipe(Strict):
    """One table or figure."""

    title: str
    source: str
    profiles: dict[ProfileName, Profile]
    show: Literal["table", "curve", "grid", "toy"] = "table"
    note: str = ""
    method: str = "dp-imgsyn"
    measure: Names = ("student",)
    data: dict[str, Annotated[Entry, BeforeValidator(_entry)]] = {}
    grid: Annotated[tuple[Grid, ...], BeforeValidator(_many)] = ()
    tuning: Tuning | None = None
    reported: Reported = Reported()


@dataclass(frozen=True, slots=True)
class Student:
    """One kind of student; its key is what its scores are filed under."""

    arch: str
    seeds: int
    schedule: Literal["short", "paper"]
    loss: Loss | None
    temperature: float | None

    @property
    def key(self) -> str:
        heat = "" if self.temperature is None else f"-T{self.temperature:g}"
        return f"student-{self.arch}-{self.schedule}-{self.loss or 'default'}{heat}-{self.seeds}seeds"


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
    """A line of the table: a cell, one kind of student, and the settings that tell it from other lines."""

    cell: Cell
    student: Student
    label: str
    axes: tuple[tuple[str, Value], ...]
    defaults: tuple[tuple[str, Value], ...]

    @property
    def name(self) -> str:
        again = f"repeat {self.cell.repeat}" if self.cell.repeat else ""
        told = [self.cell.method, f"epsilon {self.cell.epsilon:g}", self.label, *(f"{k} {v}" for k, v in self.axes),
                self.student.arch, again]  # fmt: skip
        return f"{self.cell.data} <- {self.cell.public or 'nothing'}, {', '.join(filter(None, told))}"

    def fact(self, name: str) -> Value:
        """The value of an axis or of a setting, the method's default where the recipe has none."""
        known: dict[str, Value] = {"data": self.cell.data, "public": self.cell.public, "epsilon": self.cell.epsilon,
                 "arch": self.student.arch, "label": self.label, "method": self.cell.method}  # fmt: skip
        return {**dict(self.defaults), **dict(self.cell.settings), **known}.get(name, "")


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """An error's sentence for a wrong name."""
    names = sorted(known)
    near = get_close_matches(name, names, 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
    return f"Expected a known {what}, got {printable(name)!r}; {hint}"


def read_recipe(path: Path | str) -> Recipe:
    """The recipe in a file, with everything checked that can be without data."""
    path = Path(path)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        recipe = Recipe.model_validate(document)
        _check(recipe)
    except OSError as error:
        raise UsageError(f"Expected a recipe that can be read, got: {error.strerror}.", where=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Expected a recipe in TOML: {printable(error)}.", where=path) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] != "value_error":
            what = f"{what}, got {printable(first['input'])[:80]!r}."
        raise UsageError(what, where=f"{path}, {place}" if place else path) from error
    except UsageError as error:
        raise UsageError(error.what, where=path, fix=error.fix) from error
    return recipe


def rows_of(recipe: Recipe, profile: ProfileName) -> list[Row]:
    """The lines that a profile has, in the recipe's order."""
    if profile not in recipe.profiles:
        raise UsageError(f"Expected one of the recipe's profiles {', '.join(recipe.profiles)}; got {profile!r}.")
    common = recipe.profiles[profile]
    grids = [grid for grid in recipe.grid if grid.profile in (None, profile)]
    methods = [(grid, method) for grid in grids for method in grid.method or (recipe.method,)]
    return [row for grid, method in methods for row in _rows(method, common, grid)]


def _rows(method: str, common: Profile, grid: Grid) -> Iterator[Row]:
    learner = common.student
    many = [name for name, values in grid.set.items() if len(values) > 1]
    defaults = tuple(asdict(_typical(method, {})).items())  # type: ignore[call-overload]
    heat = learner.temperature if grid.temperature is None else grid.temperature
    for data, public, epsilon, repeat in itertools.product(grid.data, grid.public, grid.epsilon, range(grid.repeats)):
        for chosen in itertools.product(*grid.set.values()):
            settings = common.set | dict(zip(grid.set, chosen, strict=True))
            cell = Cell(method, data, public, epsilon, grid.delta, grid.count or common.count,
                        common.size, common.mode, tuple(settings.items()), repeat)  # fmt: skip
            for arch in grid.arch or learner.arch:
                student = Student(arch, learner.seeds, learner.schedule, learner.loss, heat)
                yield Row(cell, student, grid.label, tuple((n, settings[n]) for n in many), defaults)


def written(value: Value) -> str:
    """A setting as a user writes it on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
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
    methods = {method for grid in recipe.grid for method in grid.method or ()} | {recipe.method}
    for method in methods:
        if method not in (allowed := tuple(contracts.names("methods"))):
            raise UsageError(unknown("method", method, allowed))
    settings = {name for method in methods for name in asdict(_typical(method, {}))}  # type: ignore[call-overload]
    for name in recipe.measure:
        if name not in (allowed := (*OWN_MEASURES, *contracts.names("metrics"))):
            raise UsageError(unknown("measure", name, allowed))
    for name in recipe.reported.columns:
        if name not in (allowed := ("by", "value", "error", *AXES, *settings)):
            raise UsageError(unknown("reported column", name, allowed))
    if recipe.tuning and not any(len(values) > 1 for grid in recipe.grid for values in grid.set.values()):
        raise UsageError("Expected a list of settings to choose from, in the set of a [[grid]].")
    if not recipe.grid and recipe.show != "toy":
        raise UsageError("Expected at least one [[grid]] in the recipe.")
    for profile in recipe.profiles:
        for row in rows_of(recipe, profile):
            if _typical(row.cell.method, dict(row.cell.settings)).public_images == "needed" and not row.cell.public:
                raise UsageError(f"Expected public images for {row.name}.", fix="add public = ... to its [[grid]]")
            classifiers.check(row.student.arch)
            if row.student.seeds < 1 or math.isnan(row.cell.epsilon) or row.cell.epsilon <= 0:
                raise UsageError("Expected epsilon above 0 and at least one seed.")
