"""sfumato doctor: exit 5 if and only if something is wrong."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.checking import left_in, refused
from sfumato.auditing import doctor

from commands import sfumato

ROOT = Path(__file__).parents[2]


def test_doctor_finds_fault_if_and_only_if_it_exits_with_5() -> None:
    outcome = sfumato("doctor")
    assert outcome.code == (5 if "BAD" in outcome.out else 0)
    assert "torch" in outcome.out


def test_json() -> None:
    findings = json.loads(sfumato("doctor", "--json").out)
    assert {"name", "ok", "detail"} == set(findings[0])


def test_optional_packages_are_those_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {extra: tuple(need.partition(">")[0] for need in needs) for extra, needs in extras.items()}
    assert named.pop("dev")
    assert named == doctor.OPTIONAL
    assert {name for names in named.values() for name in names} <= {need.partition(">")[0] for need in extras["dev"]}


def test_a_missing_optional_package_is_worth_knowing_and_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.OPTIONAL, "hide", ("torch", "a-package-of-no-one"))
    monkeypatch.setitem(doctor.OPTIONAL, "cluster", ("torch", "numpy"))
    found = {check.name: check for check in doctor.examine()}
    assert found["[hide]"].ok is None
    assert found["[hide]"].detail == 'no a-package-of-no-one; who needs it: pip install "sfumato[hide]"'
    assert found["[cluster]"].ok is True
    assert found["[cluster]"].detail == f"torch {version('torch')}, numpy {version('numpy')}"


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
