"""sfumato select: a charged choice among classifiers, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, sfumato


def test_json(larger: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = larger
    outcome = sfumato("select", release, "--real", data, "--epsilon", "1", "--classes", "a,b,c", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["lab"] is True


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without epsilon": (("r", "--real=tiny.npz"), "Missing option '--epsilon'"),
    "without real data": (("r", "--epsilon=1"), "Missing option '--real'"),
    "of nothing": (("r", "--real=tiny.npz", "--epsilon=1"), "Expected a release folder"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("select", *arguments), 2, needle)
    assert left_in(workdir) == []


def test_epsilon_zero(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    outcome = sfumato("select", release, "--real", data, "--epsilon", "0", "--classes", "a,b,c")
    refused(outcome, 2, "Expected epsilon > 0, got 0.0")
