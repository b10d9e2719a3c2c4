"""sfumato verify: check a release from its files alone."""

from __future__ import annotations

from dataclasses import asdict

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, ReleaseFolder
from sfumato.cli._printing import print_json


@command("verify_release", example="sfumato verify faces-release", order=6)
def verify(folder: ReleaseFolder, as_json: Json = False) -> None:
    """Check a release from its files alone: exit 0 only if its claim holds, 6 if not, 7 if it makes none."""
    from sfumato import verify_release

    verdict = verify_release(folder)
    if as_json:
        level = {"level": "empirical"} if verdict.empirical else {}
        print_json({"ok": verdict.ok, **level, "checks": [asdict(check) for check in verdict.checks]})
    else:
        print(verdict.text())
    raise typer.Exit(verdict.exit_code)
