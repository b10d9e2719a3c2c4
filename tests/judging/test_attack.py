"""Attacks on a release: their statistics, copies that are found, and no alarm for a private release."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from metrics.digits import reference
from release.making import make_certificate
from sfumato import contracts, data
from sfumato.contracts import ClassifierAttack, Reading
from sfumato.errors import DataError, UsageError
from sfumato.judging import near_duplicates as duplicates
from sfumato.judging.attack import AttackPlan, attack_release, plan_attacks
from sfumato.judging.near_duplicates import near_duplicates, small_distances
from sfumato.making.release import Job, make_release
from sfumato.release import read_release, write_release
from sfumato.statistics.densities import principal_axes
from sfumato.statistics.distances import to_nearest
from sfumato.statistics.roc import area, curve, epsilon_bound, rate_at
from sfumato.training.student import Schedule
from sfumato.values import Images, Reference, Release, Score

from toys import development_data

SETTINGS = (("steps", "30"), ("frequencies", "200"))


def normal(count: int, seed: int, mean: float = 0.0) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + mean


def part(images: Images, rows: Tensor | slice) -> Images:
    return Images(images.pixels[rows], images.labels[rows], images.classes)


def joined(*parts: Images) -> Images:
    return Images(torch.cat([p.pixels for p in parts]), torch.cat([p.labels for p in parts]), parts[0].classes)


# --- statistics


def test_area_counts_pairs_and_ties() -> None:
    ins, outs = normal(60, 0, 0.5).mul(3).round(), normal(50, 1).mul(3).round()
    pairs = (ins[:, None] > outs).double() + (ins[:, None] == outs).double() / 2
    value, error = area(ins, outs)
    assert value == pytest.approx(pairs.mean().item())
    # DeLong: variances of the rows' and of the columns' means
    assert error**2 == pytest.approx((pairs.mean(1).var() / 60 + pairs.mean(0).var() / 50).item())
    assert area(-ins, -outs)[0] == pytest.approx(1 - value)


def test_standard_error_is_the_spread_over_repetitions() -> None:
    repeated = np.array([area(normal(80, 2 * s, 1.0), normal(80, 2 * s + 1)) for s in range(200)])
    assert repeated[:, 1].mean() == pytest.approx(repeated[:, 0].std(), rel=0.15)
    assert repeated[:, 0].mean() == pytest.approx(0.7602, abs=0.01)  # Phi(1 / sqrt 2)


def test_rates_at_few_false_alarms() -> None:
    outs = torch.arange(200.0)
    ins = torch.cat([torch.full((30,), 500.0), torch.full((20,), 198.5), torch.zeros(50)])
    percent = rate_at(ins, outs, false_alarms=0.01)  # two of 200 may pass: the threshold is 197
    assert (percent.value, percent.measurable) == (0.5, True)
    assert percent.low == pytest.approx(0.3983, abs=1e-4)  # Clopper-Pearson for 50 of 100
    assert percent.high == pytest.approx(0.6017, abs=1e-4)
    thousandth = rate_at(ins, outs, false_alarms=0.001)
    assert (thousandth.value, thousandth.measurable) == (0.3, False)
    assert rate_at(outs, outs, false_alarms=0.01).value == pytest.approx(0.01), "ties are no hits"


def test_curve_goes_from_nothing_to_everything() -> None:
    alarms, found = curve(normal(30, 0, 1.0), normal(40, 1))
    assert (alarms[0], alarms[-1], found[-1]) == (0, 1, 1)
    assert (np.diff(alarms) >= 0).all()
    assert (np.diff(found) >= 0).all()
    assert np.trapezoid(found, alarms) == pytest.approx(area(normal(30, 0, 1.0), normal(40, 1))[0])


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_bound_on_epsilon_stays_below_the_truth(epsilon: float) -> None:
    """Randomised response of membership has exactly that epsilon."""
    truthful = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = []
    for seed in range(60):
        draw = torch.Generator().manual_seed(seed)
        ins, outs = ((torch.rand(2_000, generator=draw) < p).double() for p in (truthful, 1 - truthful))
        bounds.append(epsilon_bound(ins, outs, delta=1e-5, seed=seed).epsilon)
    assert sum(bound > epsilon for bound in bounds) <= 3
    assert np.median(bounds) >= 0.6 * epsilon


def test_bound_uses_both_directions_and_knows_its_reach() -> None:
    perfect = epsilon_bound(torch.ones(400), torch.zeros(400), delta=1e-5)
    assert perfect.epsilon == pytest.approx(perfect.largest)
    assert 3 < perfect.largest < 4
    # half of the others are surely no members, and nobody is surely one
    ruled_out = epsilon_bound(torch.ones(400), torch.arange(400.0) % 2, delta=1e-5)
    assert ruled_out.direction == "others"
    assert ruled_out.epsilon > 2
    assert epsilon_bound(torch.ones(400), torch.zeros(400), delta=0.9).epsilon < perfect.epsilon
    with pytest.raises(DataError, match="NaN"):
        area(torch.full((9,), torch.nan), torch.zeros(9))
    with pytest.raises(DataError, match="4 or more"):
        area(torch.zeros(9), torch.zeros(3))


# --- near duplicates


def fashion() -> Reference:
    where = development_data("fashion_mnist.npz")
    train, test = data.load(where), data.load(where, Reading(split="test"))
    return Reference(train=part(train, slice(0, 6_000)), test=part(test, slice(0, 3_000)))


def copying(real: Reference, innocent: Images, *, share: float) -> Release:
    """A release without copies, in which copies of that share of the training images then replace some."""
    copies = part(real.train, slice(0, int(share * len(real.train))))
    return Release(Path("r"), {}, joined(part(innocent, slice(len(copies), None)), copies))


@pytest.mark.parametrize("which", ["digits", "fashion"])
def test_a_twentieth_copied_is_flagged_and_fresh_images_are_not(which: str) -> None:
    real = reference() if which == "digits" else fashion()
    half = torch.arange(len(real.train)) % 2 == 0
    innocent, trained = part(real.train, half), replace(real, train=part(real.train, ~half))
    fresh, _ = near_duplicates(Release(Path("r"), {}, innocent), trained)
    assert not fresh.details["flagged"]
    assert fresh.value <= 5 * fresh.details["expected_share"]
    leaking, pairs = near_duplicates(copying(trained, innocent, share=0.05), trained)
    assert leaking.details["flagged"]
    assert leaking.details["exact_copies"] == int(0.05 * len(trained.train))
    by_chance = leaking.details["count"] - leaking.details["exact_copies"]
    assert by_chance <= 5 * leaking.details["expected_share"] * len(innocent)
    assert torch.equal(pairs.released, pairs.training)


@pytest.mark.parametrize("subset", ["transfer", "network"])
def test_copies_among_further_images_are_found_too(subset: str) -> None:
    real = reference()
    half = Reference(part(real.train, slice(0, 700)), real.test)
    innocent = part(real.train, slice(700, 1438))
    copies = joined(part(half.train, slice(0, 60)), part(innocent, slice(0, 100)))
    score, pairs = near_duplicates(Release(Path("r"), {}, replace(innocent, **{subset: copies})), half)
    assert score.details["exact_copies"] >= 60
    assert score.details["released_images_compared"] == score.details["released_images"] == 738 + 160
    assert score.details["flagged"]
    assert float(pairs.distances[0]) == 0
    clean, _ = near_duplicates(Release(Path("r"), {}, innocent), half)
    assert not clean.details["flagged"]
    assert clean.details["released_images"] == 738


def test_records_in_both_splits_are_set_aside_and_counted() -> None:
    real = reference()
    assert real.test is not None
    mixed = replace(real, test=joined(part(real.train, slice(0, 40)), real.test))
    score, _ = near_duplicates(Release(Path("r"), {}, part(real.train, slice(0, 40))), mixed)
    assert score.details["test_records_also_in_training"] == 40
    assert score.details["threshold"] > 0
    assert score.details["exact_copies"] == 0
    with pytest.raises(DataError, match="not training images too"):
        near_duplicates(Release(Path("r"), {}, real.train), replace(real, test=real.train))


def test_what_is_ruled_out_along_axes_is_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "FIRST", 12)
    real = reference()
    assert real.test is not None
    train = real.train.unit().flatten(1)
    _, axes = principal_axes(train, most=8, draw=torch.Generator().manual_seed(0))
    exact = to_nearest(real.test.pixels, train)
    found = small_distances(real.test.pixels, train, axes, rank=10)
    assert torch.equal(found.sort().values[:10], exact.sort().values[:10])
    below = small_distances(real.test.pixels, train, axes, rank=1, below=0.12)
    assert 50 < (exact < 0.12).sum() < 300
    assert torch.equal(below[exact < 0.12], exact[exact < 0.12])
    assert (below[exact >= 0.12] >= 0.12).all()


# --- a whole attack


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release at epsilon 1, trained for a moment."""
    return make_release(Job("digits", "dp-merf", 1.0, settings=SETTINGS), tmp_path_factory.mktemp("made") / "r")


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.name: score for score in scores}


def test_a_private_release_raises_no_alarm(private: Path) -> None:
    before = {p: p.read_bytes() for p in private.rglob("*") if p.is_file()}
    scores = by_name(attack_release(private, "digits"))
    assert {p: p.read_bytes() for p in private.rglob("*") if p.is_file()} == before
    assert not scores["near-duplicates"].details["flagged"]
    attacks = [score for name, score in scores.items() if name.startswith("attack-")]
    assert len(attacks) >= 5
    for score in attacks:
        assert score.standard_error is not None
        assert abs(score.value - 0.5) < 4 * score.standard_error
        assert not score.details["above_claim"]
        assert score.details["claimed_epsilon"] == pytest.approx(1, abs=1e-3)
        assert not score.higher_is_better
        assert [p.name.rsplit("-", 1)[1] for p in score.parts] == ["0.01", "0.001"]
    lab = private.with_name("r.lab")
    written = json.loads((lab / "scores.json").read_text())
    assert [row["score"] for row in written["scores"] if not row["part_of"]] == list(scores)
    assert {row["judges"] for row in written["scores"]} == {"privacy"}
    text = (lab / "attacks.md").read_text()
    assert text.startswith("PRIVATE")
    for words in (
        "can show copying",
        "not a test of differential privacy",
        "| domias |",
        "not flagged",
        "Too few records",
    ):
        assert words in text
    for name in ("attacks.png", "near_duplicates.png"):
        assert (lab / name).read_bytes().startswith(b"\x89PNG")
    assert not list(lab.glob("*tmp*"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A release of 200 digits, and the data set it was made from."""
    folder = tmp_path_factory.mktemp("small")
    real, arrays, draw = reference(), {}, torch.Generator().manual_seed(0)
    assert real.test is not None
    for split, images, count in (("train", real.train, 200), ("test", real.test, 120)):
        chosen = part(images, torch.randperm(len(images), generator=draw)[:count])  # neighbours are by one writer
        arrays |= {f"x_{split}": chosen.pixels[:, 0].numpy(), f"y_{split}": chosen.labels.numpy()}
    np.savez(folder / "small.npz", **arrays)
    job = Job(str(folder / "small.npz"), "dp-merf", 1.0, settings=SETTINGS, reading=Reading(classes=real.train.classes))
    return make_release(replace(job, count=100), folder / "r"), str(folder / "small.npz")


@pytest.fixture
def short_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Schedule.short
    monkeypatch.setattr(Schedule, "short", lambda arch, **changes: whole(arch, **changes | {"images_seen": 2_000}))


@pytest.mark.usefixtures("short_schedules")
def test_every_listed_attack_can_be_run_by_name(small: tuple[Path, str]) -> None:
    """A private release gives no attack anything, whether it attacks the images or a classifier trained on them."""
    release, real = small
    names = contracts.names("attacks")
    assert {"lira", "shadow-mlp", "shadow-forest", "loss-threshold", "domias"} <= set(names)
    scores = by_name(
        attack_release(
            release, real, attacks=tuple(names), shadows=4, reading=Reading(classes=reference().train.classes)
        )
    )
    for name in names:
        on_classifier = issubclass(contracts.find("attacks", name), ClassifierAttack)
        score = scores.pop(f"attack-student-{name}" if on_classifier else f"attack-{name}")
        assert 0.25 < score.value < 0.75
        assert not score.details["above_claim"]
        if name in ("lira", "shadow-mlp", "shadow-forest"):
            assert score.details["shadows"] == 4
    assert set(scores) == {"near-duplicates"}
    table = json.loads((release.with_name("r.lab") / "scores.json").read_text())
    assert table["left_out"] == {}


def test_a_panel_is_the_attacks_on_images_or_every_attack() -> None:
    default, full = plan_attacks((), "default"), plan_attacks((), "full")
    assert (default.on_student, default.on_shadows, default.shadow_lira) == ((), (), False)
    assert sorted((*full.on_release, *full.on_student, *full.on_shadows)) == sorted(contracts.names("attacks"))
    assert {"lira", "shadow-mlp", "shadow-forest"} == set(full.on_shadows)
    assert full.shadow_lira
    assert plan_attacks(("lira",), "full") == AttackPlan((), (), ("lira",), shadow_lira=False)


@pytest.mark.usefixtures("short_schedules")
def test_a_classifier_of_a_private_release_gives_nothing_away(private: Path) -> None:
    quick = ("loss-threshold", "modified-entropy", "attack-mlp", "attack-forest")
    scores = by_name(attack_release(private, "digits", attacks=quick))
    on_student = [score for name, score in scores.items() if name.startswith("attack-student-")]
    assert len(on_student) == 4
    for score in on_student:
        assert abs(score.value - 0.5) < 4 * score.standard_error
        assert not score.details["above_claim"]


def test_a_release_of_copies_is_above_its_claim(tmp_path: Path) -> None:
    train = data.load("digits")
    folder = write_release(tmp_path / "r", train, make_certificate(train))
    scores = by_name(attack_release(folder, "digits", attacks=("nearest-neighbour", "gan-leaks", "shadow-lira")))
    assert set(scores) == {"attack-nearest-neighbour", "attack-gan-leaks", "near-duplicates"}
    assert scores["near-duplicates"].value == 1
    for name in ("nearest-neighbour", "gan-leaks"):
        score = scores[f"attack-{name}"]
        assert score.value > 0.99
        assert score.details["epsilon_lower_bound"] > 2 > score.details["claimed_epsilon"]
        assert score.details["above_claim"] is True
        assert score.parts[0].value > 0.7
    text = (tmp_path / "r.lab" / "attacks.md").read_text()
    assert "| YES |" in text
    assert "FLAGGED" in text
    assert "Left out: shadow-lira, because: Expected a method and hyperparameters that this version knows" in text


def test_a_twentieth_copied_into_a_private_release(private: Path) -> None:
    real = Reference(train=data.load("digits"), test=data.load("digits", Reading(split="test")))
    score, pairs = near_duplicates(copying(real, read_release(private).images, share=0.05), real)
    assert score.details["flagged"]
    assert score.details["count"] == score.details["exact_copies"] == 71
    assert torch.equal(pairs.released, pairs.training)


def test_refusals(private: Path, tmp_path: Path) -> None:
    train = reference().train
    np.savez(tmp_path / "real.npz", x=train.pixels[:60, 0].numpy(), y=train.labels[:60].numpy())
    with pytest.raises(UsageError, match="Expected a data set with a test split"):
        attack_release(private, str(tmp_path / "real.npz"), reading=Reading(classes=train.classes))
    with pytest.raises(UsageError, match=r"Expected one of the attacks .*nearest-neighbour"):
        attack_release(private, "digits", attacks=("nearest",))
    with pytest.raises(UsageError, match="Expected the panel"):
        attack_release(private, "digits", panel="all")  # type: ignore[arg-type]
