"""Selection: charged once for all candidates, answered once, and the leaky rule is called so."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from release.making import make_certificate
from sfumato import data
from sfumato.errors import DataError, UsageError
from sfumato.judging.selection import LEAKY, select_classifier
from sfumato.privacy import PrivateImages
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


ONE = {**QUICK, "archs": ("mlp",)}
BEFORE = "the choice that was made here before, got "


def kept(release: Path) -> dict[str, bytes]:
    """All that is known of the choice."""
    folder = release.with_name("r.lab") / "selection"
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def records(path: Path, *, count: int = 300, first: int = 0) -> str:
    """Digits as an .npz file."""
    digits = data.load("digits")
    rows = slice(first, first + count)
    np.savez(path, x_train=digits.pixels[rows, 0].numpy(), y_train=digits.labels[rows].numpy())
    return str(path)


@pytest.mark.parametrize("change", [{"images_seen": 2_000.0}, {"looks": 2}, {"seeds": (1,)}, {"archs": ("small-cnn",)}])
def test_an_answer_is_not_taken_for_that_of_other_candidates(release: Path, change: dict[str, Any]) -> None:
    select_classifier(release, "digits", epsilon=0.5, **ONE)
    before = kept(release)
    with pytest.raises(UsageError, match=BEFORE + "other candidates"):
        select_classifier(release, "digits", epsilon=0.5, **{**ONE, **change})
    assert kept(release) == before


def test_an_answer_is_not_taken_for_that_of_other_images(release: Path) -> None:
    """A release of the same name with other images: its candidates have the same names."""
    select_classifier(release, "digits", epsilon=0.5, **ONE)
    before = kept(release)
    train = data.load("digits")
    train = train.rows(train.labels.new_tensor(range(len(train))).flip(0))
    shutil.rmtree(release)
    write_release(release, train, make_certificate(train))
    with pytest.raises(UsageError, match=BEFORE + "candidates of the same names from other images or schedules"):
        select_classifier(release, "digits", epsilon=0.5, **ONE)
    assert kept(release) == before


def test_an_answer_is_not_taken_for_that_of_other_records(release: Path, tmp_path: Path) -> None:
    first = records(tmp_path / "first.npz")
    score = select_classifier(release, "digits", epsilon=0.5, validation=first, **ONE)
    before = kept(release)
    for other in (records(tmp_path / "other.npz", first=300), records(tmp_path / "fewer.npz", count=200), "digits"):
        with pytest.raises(UsageError, match=BEFORE + "other data") as refused:
            select_classifier(release, "digits", epsilon=0.5, validation=other, **ONE)
        assert "costs its records again" in refused.value.fix
    assert kept(release) == before
    shutil.move(first, tmp_path / "moved.npz")
    again = select_classifier(release, "digits", epsilon=0.5, validation=str(tmp_path / "moved.npz"), **ONE)
    assert again.details["candidate"] == score.details["candidate"]
    assert kept(release) == before


def test_another_number_of_threads_finds_the_old_answer(release: Path) -> None:
    """It changes the last digits of the weights, and the question is the same."""
    first = select_classifier(release, "digits", epsilon=0.05, **ONE)
    before, threads = kept(release), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = select_classifier(release, "digits", epsilon=0.05, **ONE)
    finally:
        torch.set_num_threads(threads)
    assert again.details["candidate"] == first.details["candidate"]
    assert kept(release) == before


def test_what_is_noted_of_the_question_stays_in_the_lab(release: Path) -> None:
    select_classifier(release, "digits", epsilon=0.5, **ONE)
    noted = json.loads(kept(release)["run.json"])
    assert noted["data"] == "sfumato's digits"
    ledger = kept(release)["ledger.jsonl"].decode()
    assert "choice of a classifier" in ledger
    assert noted["data"] not in ledger


def test_a_choice_without_a_note_of_its_question_is_not_replayed(release: Path) -> None:
    select_classifier(release, "digits", epsilon=0.5, **ONE)
    (release.with_name("r.lab") / "selection" / "run.json").unlink()
    with pytest.raises(UsageError, match=BEFORE + "one without a note of what was asked"):
        select_classifier(release, "digits", epsilon=0.5, **ONE)


def test_a_choice_that_was_never_paid_for_binds_nobody(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise DataError("The data changed while it was read.")

    with monkeypatch.context() as patched:
        patched.setattr(PrivateImages, "seal", broken)
        with pytest.raises(DataError):
            select_classifier(release, "digits", epsilon=0.5, **ONE)
    assert select_classifier(release, "digits", epsilon=0.4, **{**ONE, "looks": 2}).details["candidate"]


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
