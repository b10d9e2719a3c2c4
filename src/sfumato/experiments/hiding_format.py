"""What a recipe that compares hiders may contain, and the conditions that it stands for.

It re-generates the images of each setup by several methods, so that an attribute can no longer be told, and measures
what is left of the attribute and what the images are still good for. A recipe that says `hiding = ...` is one. There
is no epsilon here: everything is measured, and all of it is lab material.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from sfumato import contracts
from sfumato.errors import UsageError
from sfumato.experiments.recipe import read_file, written
from sfumato.experiments.recipe_format import Entry, Mode, Names, ProfileName, Strict, Value, entry, many, unknown
from sfumato.judging.attribute_leak import Front
from sfumato.making.hide import DEFAULT_SHARES, Parts
from sfumato.making.settings import with_settings
from sfumato.values import Spec

Regime = Literal["no", "test", "everywhere"]  # which faces must be seen from the front: none, those that test, all
Shares = Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=4, max_length=4)]
Settings = dict[str, dict[str, Value]]  # by method
Varied = tuple[tuple[str, Value], ...]
ALL = "all"
REAL = "real"  # a row of the tables beside the methods: the real images
PARTS: tuple[Parts, ...] = get_args(Parts)
OWN = ("seed", "weights")  # settings of a method that have a key of their own in a recipe
EXAMPLE = Spec(1_000, 3, 64, 64, ("a", "b"))  # settings are checked against what a method takes for such images


class HidingEntry(Entry):
    """Where a data set lies; of one that is published in two parts, `split` says which of them is read."""

    split: Literal["train", "test"] = "train"

    @model_validator(mode="after")
    def _has_no_label(self) -> Self:
        if self.label is not None:
            raise ValueError("Expected no label of a data set, because `hiding` and `keep` name the attributes.")
        return self


class HidingProfile(Strict):
    """How much is hidden and measured."""

    seeds: int = Field(ge=1)  # each is another division of the records, another hider and other judges
    size: int | None = None  # side of the images in pixels; None: as they are
    mode: Mode | None = None
    judge: Literal["small", "resnet18"] = "small"
    judge_seeds: int = Field(default=1, ge=1)  # judges within a seed
    weights: str | None = None  # a folder in the data folder, for methods with a setting of this name
    set: Settings = Field(default_factory=dict)  # on top of the recipe's


class Setup(Strict):
    """What a hider learns from, and what is released and tested on; what is left out is as in the recipe."""

    name: str
    train: Names
    release: Names  # each of them separately
    methods: Names | None = None
    parts: Annotated[tuple[Parts, ...], BeforeValidator(many)] | None = None
    front: Annotated[tuple[Regime, ...], BeforeValidator(many)] | None = None
    vary: dict[str, Annotated[tuple[Value, ...], BeforeValidator(many)]] = Field(default_factory=dict)  # settings
    profile: ProfileName | None = None  # None: in both


class ReportedTable(Strict):
    """A published table in percent: by row, PT and CLS of the hidden attribute, and the accuracy of each kept one."""

    table: int | str
    setup: str
    parts: Parts
    front: Regime
    rows: list[list[float | str]]
    release: str = ""  # needed where the setup releases several

    @property
    def percents(self) -> dict[str, tuple[float | None, ...]]:
        return {str(by): tuple(_percent(value) for value in values) for by, *values in self.rows}


class Hiding(Strict):
    """One comparison of hiders."""

    hiding: str
    keep: Names
    title: str
    source: str
    profiles: dict[ProfileName, HidingProfile]
    setup: Annotated[tuple[Setup, ...], BeforeValidator(many), Field(min_length=1)]
    note: str = ""
    methods: Names = (ALL,)
    parts: Annotated[tuple[Parts, ...], BeforeValidator(many)] = PARTS
    front: Annotated[tuple[Regime, ...], BeforeValidator(many)] = ("no",)
    shares: Annotated[Shares, BeforeValidator(many)] = DEFAULT_SHARES
    data: dict[str, Annotated[HidingEntry, BeforeValidator(entry)]] = Field(default_factory=dict)
    set: Settings = Field(default_factory=dict)  # of methods, by their names
    reported: Annotated[tuple[ReportedTable, ...], BeforeValidator(many)] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What judges are trained on and tested on."""

    parts: Parts
    front: Front


@dataclass(frozen=True, slots=True)
class Condition:
    """What is hidden from what by which method; runs of it differ by their seed alone."""

    setup: str
    train: tuple[str, ...]
    release: str
    everywhere: bool  # faces from the front alone, to learn from and to release too
    method: str
    choices: tuple[Choice, ...]  # what is measured of each release
    varied: Varied = ()  # settings that set it apart from others of the same method

    @property
    def name(self) -> str:
        return f"{self.place}, {self.row}"

    @property
    def row(self) -> str:
        """The condition in a table of its place."""
        return ", ".join([self.method, *(f"{name} {written(value)}" for name, value in self.varied)])

    @property
    def place(self) -> str:
        """The condition without its method, for people."""
        front = ", front faces alone" if self.everywhere else ""
        return f"{self.setup}, {self.release}{front}"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the table: what its rows, which are the real images and the methods, have in common."""

    setup: str
    release: str
    front: Regime
    choice: Choice

    @classmethod
    def of(cls, condition: Condition, choice: Choice) -> Section:
        regime: Regime = "everywhere" if condition.everywhere else choice.front
        return cls(condition.setup, condition.release, regime, choice)


def largest(choices: Iterable[Choice]) -> Parts:
    """What has to be re-generated for these: no more than what is judged."""
    return max((choice.parts for choice in choices), key=PARTS.index)


def is_hiding(path: Path) -> bool:
    """Whether a recipe compares hiders; one that cannot be read does not, and is refused where it is read."""
    try:
        return "hiding" in tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False


def read_hiding(path: Path) -> Hiding:
    """The comparison in a file, with everything checked that can be without data."""

    def read(document: dict[str, Any]) -> Hiding:
        recipe = Hiding.model_validate(document)
        _check_attributes(recipe)
        for name, profile in recipe.profiles.items():
            _check_methods(recipe, profile)
            _check_setups(recipe, name)
        for table in recipe.reported:
            _check_reported(recipe, table)
        return recipe

    return read_file(path, read)


def conditions_of(recipe: Hiding, profile: ProfileName) -> list[Condition]:
    """The conditions that a profile has, in the recipe's order."""
    return list(_conditions(recipe, profile))


def _conditions(recipe: Hiding, profile: ProfileName) -> Iterator[Condition]:
    for setup in recipe.setup:
        if setup.profile not in (None, profile):
            continue
        for release, everywhere in itertools.product(setup.release, (False, True)):
            choices = _choices(setup.parts or recipe.parts, setup.front or recipe.front, everywhere)
            if not choices:
                continue
            for method, varied in _rows(recipe, setup):
                yield Condition(setup.name, setup.train, release, everywhere, method, choices, varied)


def _rows(recipe: Hiding, setup: Setup) -> Iterator[tuple[str, Varied]]:
    """The methods of a setup, each with every combination of the settings that are varied."""
    for method in _methods(setup.methods or recipe.methods):
        for values in itertools.product(*setup.vary.values()):
            yield method, tuple(zip(setup.vary, values, strict=True))


def _choices(parts: tuple[Parts, ...], regimes: tuple[Regime, ...], everywhere: bool) -> tuple[Choice, ...]:
    """What is measured of a release; one of front faces alone has no others to be tested on."""
    wanted: tuple[Front, ...] = ("no", "test")
    fronts = [front for front in wanted if front in regimes]
    if everywhere:
        fronts = ["no"] if "everywhere" in regimes else []
    return tuple(Choice(part, front) for part in dict.fromkeys(parts) for front in fronts)


def settings_of(recipe: Hiding, profile: HidingProfile, method: str, seed: int, varied: Varied = ()) -> dict[str, str]:
    """The settings of a method as `hide` takes them: the recipe's, the profile's, the condition's; a seed is the run's.

    Later ones count more.
    """
    chosen: Mapping[str, Value] = {**recipe.set.get(method, {}), **profile.set.get(method, {}), **dict(varied)}
    own = {"seed": str(seed)} if "seed" in _known(method) else {}
    return {**{name: written(value) for name, value in chosen.items()}, **own}


def takes_weights(method: str) -> bool:
    return "weights" in _known(method)


def _methods(named: tuple[str, ...]) -> list[str]:
    every = list(contracts.names("hiding"))
    return list(dict.fromkeys(method for name in named for method in (every if name == ALL else [name])))


def _known(method: str) -> set[str]:
    return {field.name for field in fields(contracts.find("hiding", method))}


def _check_attributes(recipe: Hiding) -> None:
    names = (recipe.hiding, *recipe.keep)
    if not recipe.keep or len(set(names)) < len(names):
        raise UsageError(
            f"Expected keep as attributes beside the hidden one, each once; got {', '.join(recipe.keep) or 'none'}.",
            fix=f"name some beside {recipe.hiding!r}",
        )


def _check_methods(recipe: Hiding, profile: HidingProfile) -> None:
    there = set(contracts.names("hiding"))
    asked = [*recipe.methods, *(name for setup in recipe.setup for name in setup.methods or ())]
    for name in (*asked, *recipe.set, *profile.set):
        if name not in there and not (name == ALL and name in asked):
            raise UsageError(unknown("method of hiding", name, there), fix="see `sfumato list hiding`")
    for method in sorted({*recipe.set, *profile.set}):
        _check_settings(recipe, profile, method, ())
    for setup in recipe.setup:
        for method, varied in _rows(recipe, setup):
            _check_settings(recipe, profile, method, varied)


def _check_settings(recipe: Hiding, profile: HidingProfile, method: str, varied: Varied) -> None:
    known = _known(method) - set(OWN)
    for setting in (*recipe.set.get(method, {}), *profile.set.get(method, {}), *dict(varied)):
        if setting not in known:
            raise UsageError(unknown(f"setting of {method}", setting, known))
    with_settings(contracts.find("hiding", method).for_task(EXAMPLE), settings_of(recipe, profile, method, 0, varied))


def _check_setups(recipe: Hiding, profile: ProfileName) -> None:
    names = [setup.name for setup in recipe.setup if setup.profile in (None, profile)]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Expected setups of different names in a profile, got {name!r} twice.", fix="rename one")


def _check_reported(recipe: Hiding, table: ReportedTable) -> None:
    here = f"reported table {table.table}"
    setups = {setup.name: setup for setup in recipe.setup}
    if table.setup not in setups:
        raise UsageError(f"{unknown('setup', table.setup, setups)} ({here})")
    releases = {release for setup in recipe.setup if setup.name == table.setup for release in setup.release}
    if table.release and table.release not in releases:
        raise UsageError(f"{unknown('release of the setup', table.release, releases)} ({here})")
    if not table.release and len(setups[table.setup].release) > 1:
        raise UsageError(f"Expected release = ... in {here}, because its setup releases several data sets.")
    methods = {REAL, *contracts.names("hiding")}
    for row in table.rows:
        if not row or row[0] not in methods:
            raise UsageError(f"{unknown('row', str(row[0]) if row else '', methods)} ({here})")
        if len(row) != 3 + len(recipe.keep) or any(isinstance(v, str) and v != "-" for v in row[1:]):
            raise UsageError(
                f"Expected {2 + len(recipe.keep)} numbers, or '-', after {row[0]!r} in {here}; got {row[1:]}.",
                fix=f"give PT and CLS of {recipe.hiding}, then {', '.join(recipe.keep)}, in percent",
            )


def _percent(value: float | str) -> float | None:
    return None if isinstance(value, str) else float(value)
