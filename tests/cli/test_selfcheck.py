"""sfumato selfcheck: every check passes here, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import sfumato


def test_json() -> None:
    outcome = sfumato("selfcheck", "--json")
    assert outcome.code == 0, outcome.err
    findings = json.loads(outcome.out)
    assert findings
    assert all(finding["passed"] for finding in findings), findings


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "an argument": (("tiny.npz",), "unexpected extra argument"),
    "an unknown option": (("--fast",), "--fast"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("selfcheck", *arguments), 2, needle)
    assert left_in(workdir) == []
