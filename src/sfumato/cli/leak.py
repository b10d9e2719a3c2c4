"""sfumato leak: what a hidden release gives away of the hidden attribute, and what it is still good for."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, ReadingOptions, ReleaseFolder, parsed_names
from sfumato.cli._printing import print_json

_REAL = "The real data, as given to `hide`."
_KEEP = "Attributes to measure utility by, separated by commas; default: all that were kept."
_JUDGE = "A small network (a minute each on one core), or DECO-Bench's ResNet18 (long)."
_PARTS = "Train judges on g, v+g or tr+v+g; default: all that were released."
_FRONT = "`test`: test faces from the front alone (needs dlib)."


@command("measure_leak", example="sfumato leak h --real faces/ --attribute race --keep age,gender", order=10)
def leak(
    folder: ReleaseFolder,
    real: Annotated[str, typer.Option(help=_REAL)],
    reading: ReadingOptions,
    attribute: Annotated[str | None, typer.Option(help="The hidden attribute; default: the release names it.")] = None,
    keep: Annotated[str | None, typer.Option(help=_KEEP)] = None,
    judge: Annotated[Literal["small", "resnet18"], typer.Option(help=_JUDGE)] = "small",
    seeds: Annotated[int, typer.Option(help="How many judges of each kind; every one counts.")] = 3,
    parts: Annotated[str | None, typer.Option(help=_PARTS)] = None,
    front: Annotated[Literal["no", "test"], typer.Option(help=_FRONT)] = "no",
    as_json: Json = False,
) -> None:
    """Lab side: how much of the hidden attribute is left, what the release is good for, and who is recognised in it."""
    from sfumato import measure_leak, write_leak_page
    from sfumato.judging.leak_table import LIMITS, recognised, score_rows, title

    found = measure_leak(
        folder,
        real,
        attribute=attribute,
        keep=parsed_names(keep),
        judge=judge,
        seeds=seeds,
        parts=parts,
        front=front,
        reading=reading,
    )
    page, document = write_leak_page(folder), asdict(found)
    for alarm in found.alarms:
        print(f"ALARM: {alarm}.", file=sys.stderr)
    if as_json:
        print_json({"lab": True, "leak": document})
        return
    print(title(document))
    for name, on_real, on_released, lost, majority, *_ in score_rows(document):
        print(f"  {name:36s} real {on_real:>11}  released {on_released:>11}  less {lost:>11}  majority {majority:>5}")
    print("\n".join((*recognised(document), *LIMITS)))
    print(f"Lab material, not for publication: {page} (and .md, .json)")
