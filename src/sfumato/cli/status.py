"""sfumato status: how far the cells of a store are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json


@command("store_status", example="sfumato status runs/", order=16)
def status(
    store: Annotated[Path, typer.Argument(help="The store of `sfumato run`.")] = Path("runs"), as_json: Json = False
) -> None:
    """Lab side: how far the cells of a store are, while they are run elsewhere."""
    from sfumato import store_status
    from sfumato.experiments.status import status_text

    lines = store_status(store)
    print_json(lines) if as_json else print(status_text(lines))
