"""sfumato attack: what attackers find out from a release."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, Panel, ReadingOptions, Real, ReleaseFolder
from sfumato.cli._printing import print_scores


@command("attack_release", example="sfumato attack faces-release --real faces/", order=9)
def attack(
    folder: ReleaseFolder,
    real: Real,
    reading: ReadingOptions,
    panel: Panel = "default",
    attack: Annotated[list[str] | None, typer.Option(help="Only these; see `sfumato list attacks`.")] = None,
    public: Annotated[str | None, typer.Option(help="The public images, for shadow releases.")] = None,
    as_json: Json = False,
) -> None:
    """Lab side: can attackers distinguish training records from others? Exit 6 if they show more than is claimed."""
    from sfumato import attack_release, write_page

    scores = attack_release(folder, real, reading=reading, attacks=tuple(attack or ()), panel=panel, public=public)
    print_scores(scores, write_page(folder), as_json)
    flagged = [s.name for s in scores if s.details.get("above_claim") or s.details.get("flagged")]
    if flagged:
        print(f"ALARM: {', '.join(flagged)}. Look at the page before anything is published.", file=sys.stderr)
        raise typer.Exit(6)
