"""sfumato selfcheck: checks of this machine that take a minute, before private data is opened."""

from __future__ import annotations

from sfumato.cli._command import command
from sfumato.cli._options import Json
from sfumato.cli._printing import print_findings


@command("selfcheck", example="sfumato selfcheck", order=14)
def check(as_json: Json = False) -> None:
    """A minute on this machine before private data is opened: noise, bounds, ledger, replay. Exit 6 if one fails."""
    from sfumato import selfcheck

    print_findings(selfcheck(), as_json)
