"""sfumato attack: an alarm is exit 6, and what it needs."""

from __future__ import annotations

from pathlib import Path

from release.making import make_certificate
from sfumato.data import load
from sfumato.release import write_release

from commands import Outcome, sfumato


def test_an_attack_that_shows_too_much_is_an_alarm(tmp_path: Path) -> None:
    train = load("digits")
    copies = write_release(tmp_path / "copies", train, make_certificate(train))
    outcome = sfumato("attack", copies, "--real", "digits", "--attack", "nearest-neighbour")
    assert outcome.code == 6
    assert "ALARM: attack-nearest-neighbour, near-duplicates" in outcome.err
    assert "Do not publish" in (tmp_path / "copies.lab" / "scores.html").read_text()


def test_an_attack_needs_records_that_were_not_trained_on(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    outcome = sfumato("attack", release, "--real", data, "--classes", "a,b,c")
    assert outcome.code == 2
    assert "test split" in outcome.err
