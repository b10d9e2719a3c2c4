"""Options that mean the same in every command, and how what a user writes in them is read."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli._command import Options
from sfumato.contracts import DEFAULT_METHOD, Reading
from sfumato.errors import UsageError

if TYPE_CHECKING:
    from sfumato.making.release import Job

ReleaseFolder = Annotated[Path, typer.Argument(help="A release folder.")]
NewRelease = Annotated[Path, typer.Option(help="The new folder of the release; lab material goes to OUT.lab.")]
Real = Annotated[str, typer.Option(help="The real data, as given to `release`.")]
Panel = Annotated[Literal["default", "full"], typer.Option(help="Minutes on two cores, or everything: attacks too.")]
Method = Annotated[str, typer.Option(help="See `sfumato list methods`.")]
ClassFolders = Annotated[bool, typer.Option("--folders", help="Also write the images as class folders.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]

_DATA = "A folder of class folders, a folder or zip with a CSV, an npz, idx files, Parquet, or a name such as digits."
_DELTA = "Default: the largest power of ten below 1/records, at most 1e-5."
_EPSILON = "The privacy budget; smaller is more private, 1 is strong. `inf`: no privacy."


def reading_of(
    size: Annotated[
        int | None, typer.Option(help="Resize to this many pixels a side (centre crop, antialiased).")
    ] = None,
    mode: Annotated[
        Literal["grey", "colour"] | None, typer.Option(help="Read as grey or colour; default: as the data is.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of an attribute table that holds the label.")] = None,
    classes: Annotated[str | None, typer.Option(help="The public list of classes, separated by commas.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Count unreadable files as absent instead of stopping.")
    ] = False,
) -> Reading:
    """How the data is read, from the options for it."""
    return Reading(size=size, mode=mode, label=label, classes=parsed_names(classes), skip_bad=skip_bad)


def parsed_names(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


ReadingOptions = Annotated[Reading, Options(reading_of)]


Data = Annotated[str, typer.Argument(help=_DATA)]
Epsilon = Annotated[str, typer.Option(help=_EPSILON)]
Delta = Annotated[float | None, typer.Option(help=_DELTA)]
Public = Annotated[str | None, typer.Option(help="Public images that may be used; they cost no privacy.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A hyperparameter: name=value.")]
Engine = Annotated[Literal["local", "ray"], typer.Option(help="Who holds the private records in shards.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster; default: a local one is started.")]
Processes = Annotated[int, typer.Option(help="How many processes hold the private records, a shard each.")]
LargeEpsilon = Annotated[bool, typer.Option("--i-know-epsilon-is-large", help="Needed above epsilon 10.")]


def job_of(
    data: Data,
    epsilon: Epsilon,
    reading: ReadingOptions,
    method: Method = DEFAULT_METHOD,
    delta: Delta = None,
    public: Public = None,
    settings: Settings = None,
    engine: Engine = "local",
    address: Address = None,
    processes: Processes = 1,
    i_know: LargeEpsilon = False,
) -> Any:  # a Job; its module is heavy and is imported when a command runs
    """What is to be released, from the options for it."""
    from sfumato import Job

    return Job(
        data,
        method,
        parsed_epsilon(epsilon, large_is_meant=i_know),
        delta,
        public,
        reading=reading,
        settings=parsed_settings(settings),
        engine=engine,
        address=address,
        processes=processes,
    )


JobOptions = Annotated["Job", Options(job_of)]


def parsed_epsilon(text: str, *, large_is_meant: bool) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        what = f"Expected epsilon as a number such as 1 or 0.5, got {text!r}."
        raise UsageError(what, fix="use a point, not a comma") from None
    if 10 < epsilon < math.inf and not large_is_meant:
        raise UsageError(
            f"Epsilon {epsilon:g} protects very little.", fix="use 10 or less, or add --i-know-epsilon-is-large"
        )
    if epsilon == math.inf and any(c.isdigit() for c in text):
        raise UsageError(f"Expected epsilon as a finite number, got {text!r}.", fix="write inf if you mean it")
    if epsilon == math.inf:
        warning = "epsilon inf: no clipping, no noise. The result is NOT PRIVATE and must not be published."
        print(warning, file=sys.stderr)
    return epsilon


def parsed_settings(written: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in written or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"Expected --set name=value, got {text!r}.", fix="write for example --set seed=1")
        pairs.append((name, value))
    return tuple(pairs)
