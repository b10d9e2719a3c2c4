"""The application, and what its commands share: options that mean the same everywhere, and how they are read."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated, Any, Literal

import typer

from sfumato.errors import UsageError

app = typer.Typer(
    help="Turn private images into a synthetic data set that may be published, with a guarantee that anyone can check.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

_DATA = "A folder of class folders, a folder or zip with a CSV, an npz, idx files, Parquet, or a name such as digits."
Data = Annotated[str, typer.Argument(help=_DATA)]
Method = Annotated[str, typer.Option(help="See `sfumato list methods`.")]
_EPSILON = "The privacy budget; smaller is more private, 1 is strong. `inf`: no privacy."
Epsilon = Annotated[str, typer.Option(help=_EPSILON)]
Delta = Annotated[float | None, typer.Option(help="Default: the largest power of ten below 1/records, at most 1e-5.")]
Size = Annotated[int | None, typer.Option(help="Resize to this many pixels a side (centre crop, antialiased).")]
_MODE = "Read as grey or colour; default: as the data is."
Mode = Annotated[Literal["grey", "colour"] | None, typer.Option(help=_MODE)]
Label = Annotated[str | None, typer.Option(help="The column of an attribute table that holds the label.")]
Classes = Annotated[str | None, typer.Option(help="The public list of classes, separated by commas.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count unreadable files as absent instead of stopping.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="A hyperparameter of the method: name=value.")]
Public = Annotated[str | None, typer.Option(help="Public images that the method may use; they cost no privacy.")]
Large = Annotated[bool, typer.Option("--i-know-epsilon-is-large", help="Needed above epsilon 10.")]
Arch = Annotated[str, typer.Option(help="small-cnn, scattering, resnet18/34, vgg11, mobilenet-v2 or shufflenet-v2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for machines.")]


def parsed_epsilon(text: str, large_is_meant: bool) -> float:
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


def parsed_reading(size: int | None, mode: Any, label: str | None, classes: str | None, skip_bad: bool) -> Any:
    from sfumato.contracts import Reading

    named = None if classes is None else tuple(part.strip() for part in classes.split(","))
    return Reading(size=size, mode=mode, label=label, classes=named, skip_bad=skip_bad)


def parsed_settings(written: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in written or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"Expected --set name=value, got {text!r}.")
        pairs.append((name, value))
    return tuple(pairs)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))
