"""sfumato student: a classifier trained on a release, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, sfumato


def test_json(larger: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = larger
    outcome = sfumato("student", release, "--real", data, "--seeds", "1", "--classes", "a,b,c", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["lab"] is True


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without real data": (("r",), "Missing option '--real'"),
    "of nothing": (("r", "--real=tiny.npz"), "Expected a release folder"),
    "unknown loss": (("r", "--real=tiny.npz", "--loss=hinge"), "--loss"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("student", *arguments), 2, needle)
    assert left_in(workdir) == []


SETTINGS = {
    "no seeds": ("--seeds=0", "Expected 1 to 1000 seeds, got 0"),
    "unknown architecture": ("--arch=perceptron", "got 'perceptron'"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_bad_setting(name: str, made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    setting, needle = SETTINGS[name]
    refused(sfumato("student", release, "--real", data, "--classes", "a,b,c", setting), 2, needle)
