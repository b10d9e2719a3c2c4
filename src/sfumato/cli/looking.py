"""Commands around the rest: recipes, what there is, and this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from sfumato.cli.options import (
    Json,
    app,
    print_json,
)


@app.command(epilog="Example: `sfumato run recipes/dp_imgsyn_table2.toml --data images/`")
def run(
    recipe: Annotated[Path, typer.Argument(help="One table or figure as a TOML file.")],
    profile: Annotated[Literal["small", "paper"], typer.Option(help="Minutes, or as published.")] = "small",
    only: Annotated[str, typer.Option(help="Only cells whose name has this text.")] = "",
    out: Annotated[Path | None, typer.Option(help="The store of cells; default: runs. Private.")] = None,
    data: Annotated[Path | None, typer.Option(envvar="SFUMATO_DATA", help="The folder of the data sets.")] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Who runs the cells.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes; default 1, or all of the cluster.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; default: a local one is started.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show cells, budgets and times, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Lab side: run a recipe and write its table; what is there already is not run again."""
    from sfumato.experiments.engines import engine_of
    from sfumato.experiments.experiment import Experiment

    experiment = Experiment.of(recipe, profile=profile, out=out, folder=data)
    runner = engine_of(engine, workers=workers, address=address)
    made, text = experiment.planned(only) if dry_run else experiment.table(only, engine=runner)
    print_json(made) if as_json else print(text)


@app.command(epilog="Example: `sfumato report faces-release --public --out faces.html`")
def report(
    folder: Annotated[Path, typer.Argument(help="A release, or the store of `sfumato run`.")],
    out: Annotated[Path | None, typer.Option(help="A folder for a site, a file for a public page.")] = None,
    public: Annotated[bool, typer.Option("--public", help="A page to publish, made from the release alone.")] = False,
    as_json: Json = False,
) -> None:
    """Make pages that open without a server: of a release for everyone, or of all cells of a store, lab side."""
    from sfumato.errors import UsageError

    if public:
        from sfumato.report.confined import write_confined_page

        page = write_confined_page(folder, out or Path(f"{folder.absolute().name}.html"))
        print_json({"open": str(page), "lab": False}) if as_json else print(f"open {page}")
        return
    if not (folder / "cells").is_dir():
        raise UsageError(
            "Expected a store of cells for a site, got another folder.",
            where=folder,
            fix="add --public for the page of a release, or name the --out of `sfumato run`",
        )
    from sfumato.experiments.totals import totals
    from sfumato.lab.store import Store
    from sfumato.report.site import write_site

    spent = {total.data: asdict(total) for total in totals(Store(folder))}
    index = write_site(folder, out or Path("site"), totals=spent)
    print_json({"open": str(index), "lab": True}) if as_json else print(f"open {index}  (private: lab material)")


@app.command(epilog="Example: `sfumato status runs/`")
def status(
    store: Annotated[Path, typer.Argument(help="The store of `sfumato run`.")] = Path("runs"), as_json: Json = False
) -> None:
    """Lab side: how far the cells of a store are, while they are run elsewhere."""
    from sfumato.errors import UsageError
    from sfumato.experiments import status as cells
    from sfumato.lab.store import Store

    if not store.is_dir():
        raise UsageError(
            "Expected the folder of a store, got none.", where=store, fix="name the --out of `sfumato run`"
        )
    lines = cells.status(Store(store))
    print_json(lines) if as_json else print(cells.text(lines))


@app.command("list", epilog="Example: `sfumato list methods`")
def list_(kind: Literal["methods", "metrics", "attacks", "datasets"], as_json: Json = False) -> None:
    """Show what there is: methods, metrics, attacks or datasets."""
    from sfumato.contracts import names

    known = names("data" if kind == "datasets" else kind)
    if as_json:
        print_json(known)
        return
    for name, sentence in known.items():
        print(f"  {name:16s} {sentence}")


@app.command(epilog="Example: `sfumato doctor`")
def doctor(as_json: Json = False) -> None:
    """Look at this machine: versions, known traps, entropy, disk, memory. Exit 5 if something is wrong."""
    from sfumato.auditing.doctor import examine

    findings = examine()
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        for f in findings:
            print(f"  {'ok  ' if f.ok else 'note' if f.ok is None else 'BAD '} {f.name:14s} {f.detail}")
    raise typer.Exit(5 if any(f.ok is False for f in findings) else 0)
