"""sfumato plan: what it shows, and that it touches nothing."""

from __future__ import annotations

from pathlib import Path

from commands import Outcome, sfumato


def test_plan_touches_nothing(made: tuple[Path, Path, Outcome]) -> None:
    before = sorted(made[0].parent.iterdir())
    outcome = sfumato("plan", made[0], "--classes", "a,b,c", "--epsilon", "8")
    assert outcome.code == 0
    for words in ("90 records, 1 x 8 x 8, 3 classes", "noise multiplier", "of 8 at delta 1e-05", "takes   about"):
        assert words in outcome.out
    assert sorted(made[0].parent.iterdir()) == before
