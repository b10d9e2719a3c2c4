"""sfumato attack: an alarm is exit 6, and what it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused
from release.making import make_certificate
from sfumato.data import load
from sfumato.release import write_release

from commands import Outcome, sfumato


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that is a copy of its training records."""
    train = load("digits")
    return write_release(tmp_path_factory.mktemp("copies") / "copies", train, make_certificate(train))


def test_an_attack_that_shows_too_much_is_an_alarm(copies: Path) -> None:
    outcome = sfumato("attack", copies, "--real", "digits", "--attack", "nearest-neighbour")
    assert outcome.code == 6
    assert "ALARM: attack-nearest-neighbour, near-duplicates" in outcome.err
    assert "Do not publish" in copies.with_name("copies.lab").joinpath("scores.html").read_text()


def test_json(copies: Path) -> None:
    outcome = sfumato("attack", copies, "--real", "digits", "--attack", "nearest-neighbour", "--json")
    assert json.loads(outcome.out)["scores"][0]["details"]["above_claim"] is True


def test_an_attack_needs_records_that_were_not_trained_on(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    outcome = sfumato("attack", release, "--real", data, "--classes", "a,b,c")
    assert outcome.code == 2
    assert "test split" in outcome.err


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without real data": (("r",), "Missing option '--real'"),
    "of nothing": (("r", "--real=digits"), "Expected a release folder"),
    "of an unknown panel": (("r", "--real=digits", "--panel=all"), "'all' is not one of"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("attack", *arguments), 2, needle)
    assert left_in(workdir) == []


def test_unknown_attack(made: tuple[Path, Path, Outcome]) -> None:
    refused(sfumato("attack", made[1], "--real", "digits", "--attack", "mind-reading"), 2, "got 'mind-reading'")
