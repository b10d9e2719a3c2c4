"""sfumato resample: another release at the same epsilon, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, sfumato


def test_json(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato("resample", made[1], "--out", tmp_path / "again", "--json")
    assert outcome.code == 0, outcome.err
    assert 0 < json.loads(outcome.out)["epsilon"] <= 8


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without a release": (("--out=again",), "Missing argument"),
    "without out": (("r",), "Missing option '--out'"),
    "of nothing": (("r", "--out=again"), "Expected a release folder"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("resample", *arguments), 2, needle)
    assert left_in(workdir) == []


CHANGES: dict[str, tuple[str, str]] = {
    "count zero": ("--count=0", "got 0"),
    "unknown setting": ("--set=stepps=4", "stepps"),
    "a setting of the private queries": (
        "--set=frequencies=30",
        "frequencies changes what is asked of the data",
    ),
    "into the data": ("--out=tiny.npz", "got one that exists"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_bad_change(name: str, made: tuple[Path, Path, Outcome], workdir: Path) -> None:
    change, needle = CHANGES[name]
    refused(sfumato("resample", made[1], "--out", "again", change), 2, needle)
    assert left_in(workdir) == []
