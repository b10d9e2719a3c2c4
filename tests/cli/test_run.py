"""sfumato run: the plan of a recipe, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import sfumato

RECIPE = Path(__file__).parents[2] / "recipes" / "dp_imgsyn_figure5.toml"


def test_dry_run(workdir: Path) -> None:
    outcome = sfumato("run", RECIPE, "--dry-run")
    assert outcome.code == 0, outcome.err
    assert "0 of 0 releases can be made here" in outcome.out
    assert left_in(workdir) == []


def test_json() -> None:
    outcome = sfumato("run", RECIPE, "--dry-run", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == []  # the toy has no releases


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without a recipe": ((), "Missing argument"),
    "recipe that is not there": (("nowhere.toml",), "No such file"),
    "recipe that is no text": (("tiny.npz",), "Expected a recipe"),
    "unknown profile": ((str(RECIPE), "--profile=large"), "--profile"),
    "unknown engine": ((str(RECIPE), "--engine=slurm"), "--engine"),
    "data folder that is not there": ((str(RECIPE), "--data=nowhere"), "Expected --data"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("run", *arguments), 2, needle)
    assert left_in(workdir) == []
