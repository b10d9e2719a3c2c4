"""sfumato list: what there is to choose from."""

from __future__ import annotations

from typing import Literal

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json


@command("available", example="sfumato list methods", order=18)
def show(
    kind: Literal["methods", "learners", "hiding", "metrics", "attacks", "datasets"], as_json: Json = False
) -> None:
    """Show what there is: methods, learners, ways of hiding, metrics, attacks or datasets."""
    from sfumato import available

    known = available("data" if kind == "datasets" else kind)
    if as_json:
        print_json(known)
        return
    for name, sentence in known.items():
        print(f"  {name:16s} {sentence}")
