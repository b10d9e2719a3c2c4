"""sfumato doctor: is this machine fit for it?"""

from __future__ import annotations

from dataclasses import asdict

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_json


@command("doctor", example="sfumato doctor", order=19)
def examine(as_json: Json = False) -> None:
    """Check this machine: versions, known traps, entropy, disk, memory. Exit 5 if something is wrong."""
    from sfumato import doctor

    findings = doctor()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            state = "note" if finding.ok is None else "ok  " if finding.ok else "BAD "
            print(f"  {state} {finding.name:14s} {finding.detail}")
    raise typer.Exit(5 if any(finding.ok is False for finding in findings) else 0)
