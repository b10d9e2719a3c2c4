"""sfumato verify: yes, and no with exit 6."""

from __future__ import annotations

from pathlib import Path

from commands import Outcome, sfumato


def test_verify_says_yes(made: tuple[Path, Path, Outcome]) -> None:
    outcome = sfumato("verify", made[1])
    assert outcome.code == 0, outcome.out
    assert outcome.out.startswith("VERIFIED")


def test_verify_says_no_with_exit_6(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato("verify", tmp_path)
    assert outcome.code == 6
    assert outcome.out.startswith("FAILED")
