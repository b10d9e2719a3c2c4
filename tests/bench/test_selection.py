"""Selection: charged once for all candidates, answered once, and the leaky rule is called so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from release.making import make_certificate
from sfumato import data
from sfumato.bench.selection import LEAKY, select_classifier
from sfumato.errors import DataError, UsageError
from sfumato.release import write_release
from sfumato.values import Score

QUICK = {"seeds": (0,), "looks": 3, "images_seen": 3_000.0}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    train = data.load("digits")
    return write_release(tmp_path / "r", train, make_certificate(train))


def by_name(score: Score) -> dict[str, Score]:
    return {part.name: part for part in score.parts}


def test_one_choice_is_charged_for_all_candidates(release: Path) -> None:
    score = select_classifier(release, "digits", epsilon=0.5, **QUICK)
    rules = by_name(score)
    assert list(rules) == ["selected-last-step", "selected-by-release", "selected-by-noisy-max", LEAKY]
    assert score.value == rules["selected-by-noisy-max"].value
    assert all(rules[LEAKY].value >= part.value for part in score.parts)
    assert "leaky" in LEAKY
    assert rules["selected-by-noisy-max"].details["cost"] == "epsilon 0.5 in addition to the release's own epsilon"
    folder = release.with_name("r.lab") / "selection"
    records = [json.loads(line.split(" ", 1)[1]) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    (charge,) = (record for record in records if record["record"] == "charge")
    assert charge["mechanism"]["kind"] == "noisy-choice"
    assert charge["mechanism"]["candidates"] == len(json.loads((folder / "candidates.json").read_text())) == 6
    assert charge["mechanism"]["noise_multiplier"] == pytest.approx(2, rel=0.01)  # epsilon is 1 / noise
    assert (folder.stat().st_mode & 0o777) == 0o700


def test_the_same_question_is_not_asked_twice(release: Path) -> None:
    first = select_classifier(release, "digits", epsilon=0.05, validation="digits", **QUICK)
    ledger = release.with_name("r.lab") / "selection" / "ledger.jsonl"
    before = ledger.read_bytes()
    second = select_classifier(release, "digits", epsilon=0.05, validation="digits", **QUICK)
    assert ledger.read_bytes() == before
    assert second.details["candidate"] == first.details["candidate"]
    with pytest.raises(UsageError, match="epsilon of the choice that was made"):
        select_classifier(release, "digits", epsilon=0.06, validation="digits", **QUICK)
    assert first.details["cost"] == "epsilon 0.05 of the validation records alone"


def test_the_choice_is_as_random_as_it_costs(release: Path) -> None:
    """At a large epsilon the records choose what is best for them; the release is the records, so it agrees."""
    rules = by_name(select_classifier(release, "digits", epsilon=10, **QUICK))
    assert rules["selected-by-noisy-max"].value > 0.9
    assert rules["selected-by-noisy-max"].value >= rules["selected-last-step"].value


def test_an_impossible_epsilon_is_refused(release: Path) -> None:
    with pytest.raises(UsageError, match="epsilon"):
        select_classifier(release, "digits", epsilon=math.nan)
    assert not (release.with_name("r.lab") / "selection").exists()


def test_a_tiny_release_is_refused(tmp_path: Path) -> None:
    few = data.load("digits")
    few = few.rows(few.labels.new_tensor(range(10)))
    folder = write_release(tmp_path / "r", few, make_certificate(few))
    with pytest.raises(DataError, match="at least 20 images"):
        select_classifier(folder, "digits", epsilon=1)
