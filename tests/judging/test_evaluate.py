"""Evaluating a release: the same twice, a list of what was left out, and results by group if there are groups."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from release.making import make_certificate
from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging import evaluate, weights
from sfumato.judging.evaluate import evaluate_release
from sfumato.judging.harmonic import add_harmonic_score, harmonic_score
from sfumato.judging.panel import panel_of
from sfumato.judging.reference import reference_for
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.release import read_release, write_release
from sfumato.report.evaluation import write_page
from sfumato.statistics import features
from sfumato.values import Score

CHEAP = ("fid", "kid", "precision", "recall", "density", "coverage", "nearest", "representation")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A third of the digits, as if it had been released."""
    train = data.load("digits")
    some = train.rows(train.labels.new_tensor(range(0, len(train), 3)))
    return write_release(tmp_path_factory.mktemp("judged") / "r", some, make_certificate(some))


def test_the_same_release_gets_the_same_scores_twice(release: Path) -> None:
    first, second = (evaluate_release(release, "digits", metrics=CHEAP) for _ in range(2))
    assert len(first) == len(CHEAP)
    for one, other in zip(first, second, strict=True):
        assert one.standard_error is not None
        assert abs(one.value - other.value) <= one.standard_error
        assert one.name == other.name


def test_the_table_and_the_page_say_that_all_of_it_is_lab_side(release: Path) -> None:
    evaluate_release(release, "digits", metrics=("nearest",))
    document = json.loads((release.with_name("r.lab") / "scores.json").read_text())
    page = write_page(release).read_text()
    for text in (document["lab_side"], (release.with_name("r.lab") / "scores.md").read_text(), page):
        assert "all of it is lab material" in text
    assert "nearest" in page
    assert "epsilon" in page
    assert "<script" not in page
    assert 'src="http' not in page


def test_a_panel_holds_what_is_its_own() -> None:
    default, full = panel_of("default"), panel_of("full")
    assert set(default) <= set(full)
    assert {"gen2real", "real2gen", "fid", "kid", "precision", "recall", "nearest"} <= set(default)
    assert {metric.judges for metric in full.values()} == {"utility", "fidelity", "privacy", "fairness"}
    assert set(panel_of("default", ("fid",))) == {"fid"}


def test_what_is_named_and_cannot_be_judged_is_an_error(release: Path) -> None:
    with pytest.raises(NotApplicable, match="public images"):
        evaluate_release(release, "digits", metrics=("obfuscation",))


def test_inception_is_downloaded_for_one_who_names_it_and_must_be_the_published_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(features, "FOLDERS", [])
    (tmp_path / "other").write_bytes(b"not the weights")
    for sha256, outcome in (
        (weights.INCEPTION.sha256, pytest.raises(DataError, match="SHA-256")),
        (hashlib.sha256(b"not the weights").hexdigest(), contextlib.nullcontext()),
    ):
        offered = replace(weights.INCEPTION, sha256=sha256, urls=((tmp_path / "other").as_uri(),))
        monkeypatch.setattr(weights, "INCEPTION", offered)
        weights.provide_weights("auto")
        assert not (tmp_path / "cache" / offered.name).exists()
        with outcome:
            weights.provide_weights("inception-v3")
    assert (features.FOLDERS[0] / offered.name).read_bytes() == b"not the weights"


def faces(folder: Path, *, complete: bool = True) -> Path:
    """A zip of pictures with an attribute table; the last has no group unless complete."""
    draw, path = np.random.default_rng(0), folder / "faces.zip"
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(60):
            name = f"{number:03d}.png"
            Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / name)
            archive.write(folder / name, name)
            rows.append([name, number % 2, "ab"[number % 3 == 0]])
        if not complete:
            rows[-1][2] = ""
        with (folder / "attributes.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["file", "label", "tribe"], *rows])
        archive.write(folder / "attributes.csv", "attributes.csv")
    return path


def test_groups_are_read_beside_the_labels(tmp_path: Path) -> None:
    real = str(faces(tmp_path))
    images = data.load(real, Reading(label="label"))
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    reference = reference_for(read_release(folder), real, Reading(label="label"), group="tribe")
    assert reference.groups is not None
    assert reference.groups.names == ("a", "b")
    assert reference.groups.train.tolist() == [int(n % 3 == 0) for n in range(60)]
    assert reference.held_out_groups is reference.groups.train


def test_groups_that_are_the_classes_are_refused(release: Path) -> None:
    with pytest.raises(UsageError, match="groups beside the classes"):  # digits have no attribute table
        reference_for(read_release(release), "digits", Reading(), group="tribe")


def test_a_group_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    real = str(faces(tmp_path, complete=False))
    images = data.load(real, Reading(label="label"))
    folder = write_release(tmp_path / "r", images, make_certificate(images))
    with pytest.raises(UsageError, match="tribe"):
        reference_for(read_release(folder), real, Reading(label="label", skip_bad=True), group="tribe")


def test_the_harmonic_score_appears_when_its_three_terms_are_there(tmp_path: Path) -> None:
    terms = {
        "gen2real": (0.8, "utility"),
        "attack-domias": (0.55, "privacy"),
        "attack-gan-leaks": (0.6, "privacy"),
        "model-bias": (0.1, "fairness"),
    }
    entries = [Entry(Score(n, value, 0.01, True), n, judges) for n, (value, judges) in terms.items()]
    with Lab(tmp_path / "r.lab") as lab:
        add_scores(lab, entries[:3], judged_on="the test split", left_out={})
        assert add_harmonic_score(lab) is None
        add_scores(lab, entries[3:], judged_on="the test split", left_out={})
        score = add_harmonic_score(lab)
    assert score is not None
    strongest = [entries[k].score for k in (0, 2, 3)]
    assert score.value == harmonic_score(*strongest).value
    assert "HS = 3" in read_scores(tmp_path / "r.lab")["scores"][-1]["details"]["formula"]


@pytest.mark.parametrize(
    ("panel", "metrics", "attacked"), [("full", (), True), ("full", ("nearest",), False), ("default", (), False)]
)
def test_the_full_panel_attacks_the_release_too(
    panel: str, metrics: tuple[str, ...], attacked: bool, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(evaluate, "panel_of", lambda *_, **__: panel_of("default", ("nearest",)))
    monkeypatch.setattr(evaluate, "attack_release", lambda *_, **settings: asked.append(settings) or [])
    evaluate_release(release, "digits", panel=panel, metrics=metrics)
    assert [settings["panel"] for settings in asked] == (["full"] if attacked else [])
