"""sfumato plan: what it prints, that it writes nothing, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, sfumato


def test_plan_touches_nothing(made: tuple[Path, Path, Outcome]) -> None:
    before = sorted(made[0].parent.iterdir())
    outcome = sfumato("plan", made[0], "--classes", "a,b,c", "--epsilon", "8")
    assert outcome.code == 0
    for words in ("90 records, 1 x 8 x 8, 3 classes", "noise multiplier", "of 8 at delta 1e-05", "takes   about"):
        assert words in outcome.out
    assert sorted(made[0].parent.iterdir()) == before


def test_json(made: tuple[Path, Path, Outcome]) -> None:
    outcome = sfumato("plan", made[0], "--epsilon", "8", "--classes", "a,b,c", "--json")
    assert 0 < json.loads(outcome.out)["epsilon"] <= 8


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "of nothing": (("nowhere", "--epsilon=1"), "nowhere"),
    "with public data that is not there": (("tiny.npz", "--epsilon=1", "--public=nowhere"), "nowhere"),
    "with epsilon zero": (("tiny.npz", "--epsilon=0"), "Expected epsilon > 0"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("plan", *arguments), 2, needle)
    assert left_in(workdir) == []
