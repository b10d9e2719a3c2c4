"""sfumato audit: the findings of a method that is as private as it claims, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import sfumato


def test_json() -> None:
    outcome = sfumato("audit", "--method", "dp-merf", "--json")
    assert outcome.code == 0, outcome.err
    findings = json.loads(outcome.out)
    assert findings
    assert all(finding["passed"] for finding in findings), findings


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown method": (("--method=dp-murf",), "sfumato; got 'dp-murf'"),
    "epsilon zero": (("--method=dp-merf", "--epsilon=0"), "Expected a finite epsilon > 0"),
    "epsilon not a number": (("--method=dp-merf", "--epsilon=nan"), "Expected a finite epsilon > 0"),
    "epsilon a word": (("--epsilon=abc",), "--epsilon"),
    "data of one's own": (("tiny.npz",), "unexpected extra argument"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("audit", *arguments), 2, needle)
    assert left_in(workdir) == []
