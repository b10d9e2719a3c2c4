"""What a recipe may contain: its tables and keys, each of an exact type."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from sfumato import contracts
from sfumato.errors import printable

ProfileName = Literal["small", "paper"]
Value = bool | int | float | str


def many(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def entry(value: Any) -> Any:
    return value if isinstance(value, dict) else {"files": value}


Names = Annotated[tuple[str, ...], BeforeValidator(many)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(many)]
Values = Annotated[tuple[Value, ...], BeforeValidator(many)]
MetricSettings = dict[str, Value | list[Value]]
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
    metrics: dict[str, MetricSettings] = {}  # settings of metrics, by their names


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
    data: dict[str, Annotated[Entry, BeforeValidator(entry)]] = {}
    grid: Annotated[tuple[Grid, ...], BeforeValidator(many)] = ()
    tuning: Tuning | None = None
    reported: Reported = Reported()


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """An error's sentence for a wrong name."""
    names = sorted(known)
    near = get_close_matches(name, names, 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
    return f"Expected a known {what}, got {printable(name)!r}; {hint}"
