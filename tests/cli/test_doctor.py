"""sfumato doctor: exit 5 if and only if something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import sfumato


def test_doctor_finds_fault_if_and_only_if_it_exits_with_5() -> None:
    outcome = sfumato("doctor")
    assert outcome.code == (5 if "BAD" in outcome.out else 0)
    assert "torch" in outcome.out


def test_json() -> None:
    findings = json.loads(sfumato("doctor", "--json").out)
    assert {"name", "ok", "detail"} == set(findings[0])


def test_doctor_works_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc, where not even root can write")
    monkeypatch.chdir("/proc")
    outcome = sfumato("doctor", "--json")
    assert outcome.code == 5
    assert {f["name"]: f["ok"] for f in json.loads(outcome.out)}["locks"] is False


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "an argument": (("tiny.npz",), "unexpected extra argument"),
    "an unknown option": (("--fix",), "--fix"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("doctor", *arguments), 2, needle)
    assert left_in(workdir) == []
