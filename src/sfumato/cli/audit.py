"""sfumato audit: is our implementation of a method as private as it claims?"""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli._command import command
from sfumato.cli._options import Json, Method
from sfumato.cli._printing import print_findings
from sfumato.contracts import DEFAULT_METHOD


@command("audit_method", example="sfumato audit --method dp-merf", order=13)
def audit(
    method: Method = DEFAULT_METHOD,
    epsilon: Annotated[float, typer.Option(help="The budget of the audited runs.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Is our own implementation as private as it claims? Runs on fixture data, never on yours. Exit 6 if not."""
    from sfumato import audit_method

    print_findings(audit_method(method, epsilon=epsilon), as_json)
