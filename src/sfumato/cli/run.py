"""sfumato run: a recipe, and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json


@command("run_recipe", example="sfumato run recipes/dp_imgsyn_table2.toml --data images/", order=15)
def run(
    recipe: Annotated[Path, typer.Argument(help="One table or figure as a TOML file.")],
    profile: Annotated[Literal["small", "paper"], typer.Option(help="Minutes, or as published.")] = "small",
    only: Annotated[str, typer.Option(help="Only cells whose name has this text.")] = "",
    out: Annotated[Path, typer.Option(help="The store of cells. Private.")] = Path("runs"),
    data: Annotated[Path | None, typer.Option(envvar="SFUMATO_DATA", help="The folder of the data sets.")] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Who runs the cells.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes; default 1, or all of the cluster.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; default: a local one is started.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show cells, budgets and times, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Lab side: run a recipe and write its table; what is there already is not run again."""
    from sfumato import run_recipe

    result = run_recipe(
        recipe,
        profile=profile,
        only=only,
        out=out,
        data=data,
        engine=engine,
        workers=workers,
        address=address,
        dry_run=dry_run,
    )
    print_json(result.document) if as_json else print(result.text)
