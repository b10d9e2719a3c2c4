"""sfumato report: pages of a release for everyone, or of all cells of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json


@command("write_site", "write_public_page", example="sfumato report faces-release --public --out faces.html", order=17)
def report(
    folder: Annotated[Path, typer.Argument(help="A release, or the store of `sfumato run`.")],
    out: Annotated[Path | None, typer.Option(help="A folder for a site, a file for a public page.")] = None,
    public: Annotated[bool, typer.Option("--public", help="A page to publish, made from the release alone.")] = False,
    as_json: Json = False,
) -> None:
    """Make pages that open without a server: of a release for everyone, or of all cells of a store, lab side."""
    from sfumato import write_public_page, write_site

    page = write_public_page(folder, out) if public else write_site(folder, out)
    note = "" if public else "  (private: lab material)"
    print_json({"open": str(page), "lab": not public}) if as_json else print(f"open {page}{note}")
