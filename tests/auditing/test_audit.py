"""The audit passes what is right and rings for what is wrong, as often as it says."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sfumato import contracts
from sfumato.auditing import audit, fixture, selfcheck
from sfumato.auditing.canaries import REFERENCE, CanaryAudit, Claim, audit_choice, audit_shards, audit_sums
from sfumato.auditing.lower_bounds import curve_margin, epsilon_lower_bound, epsilon_of, mu_lower_bound
from sfumato.auditing.observer import independent_finding, normal_finding, sampling_finding
from sfumato.errors import UsageError
from sfumato.privacy import GaussianSum, Noise, NoisyChoice, SeededNoise, ShardedAnswers, ShardedSums, rows
from sfumato.statistics.intervals import rate_bounds


class Quiet(SeededNoise):
    """Noise of another size; seeded, so that a test that passes once passes always."""

    def __init__(self, factor: float = 1.0, seed: int = 0) -> None:
        super().__init__(seed)
        self.factor = factor

    def lattice_gaussian(self, count: int, scale: float) -> np.ndarray:
        return super().lattice_gaussian(count, scale * self.factor)

    def gumbel(self, count: int) -> np.ndarray:
        return self.factor * super().gumbel(count)


@functools.cache
def reference() -> Claim:
    return Claim.of(REFERENCE)


def seen(ask: str = "histogram", *, factor: float = 1.0, seed: int = 0, **more: int) -> CanaryAudit:
    return audit_sums(REFERENCE, ask=ask, claim=reference(), noise=Quiet(factor, seed), seed=seed, **more)


@pytest.mark.parametrize("name", contracts.names("methods"))
def test_every_method_passes_its_audit(name: str) -> None:
    kinds, known = ("the only one of its class",), fields(contracts.find("methods", name))
    settings = (("sampling", "0.25"),) if any(f.name == "sampling" for f in known) else ()
    parts = ("replay", "noise", "sampler", "ledger")
    found = audit.audit_method(name, settings=settings, parts=parts, kinds=kinds)
    assert [f"{f.name}: {f.detail}" for f in found if not f.passed] == []
    expected = {
        "moves within its reach",
        "same control flow",
        "same release",
        "noise as charged",
        "sample as charged",
        "noise never repeated",
        "draws as charged",
        "ledger and certificate",
    }
    assert expected <= {f.name for f in found}
    json.dumps([asdict(f) for f in found], allow_nan=False)


def test_the_canaries_of_an_audit_pass_and_are_reported_in_numbers() -> None:
    planned = [GaussianSum(rounds=3, sampling=0.3, noise_multiplier=2.0)]
    found = audit.canary_findings(planned, 0.999)
    assert [f.name for f in found] == [
        "canaries, as planned",
        "canaries, sampled",
        "canaries, counted",
        "canaries, bounded rows",
    ]
    assert [f.detail for f in found if not f.passed] == []
    json.dumps([asdict(f) for f in found], allow_nan=False)
    assert all(0 < f.values["model_based"] <= f.values["claimed"] for f in found)


def test_the_bound_on_the_reference_is_near_the_claim() -> None:
    audited = seen()
    assert audited.claimed == pytest.approx(epsilon_of(2.0, 1e-5), rel=2e-3)
    assert 0.85 * audited.claimed <= audited.model_based <= audited.claimed
    assert audited.normality > 1e-6


def test_fifty_repeats_on_the_right_core_ring_at_most_once() -> None:
    assert sum(not seen(seed=seed, canaries=10_000).passed for seed in range(50)) <= 1


@pytest.mark.parametrize("factor", [0.9, 0.8, 0.5, 0.0])
def test_too_little_noise_is_caught(factor: float) -> None:
    audited = seen(factor=factor)
    assert not audited.passed
    assert audited.model_based > audited.claimed


@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_far_too_little_noise_is_caught_without_assumptions(factor: float) -> None:
    assert seen(factor=factor).margin > 0
    sampled = (GaussianSum(rounds=4, sampling=0.5, noise_multiplier=1.0),)
    assert audit_sums(sampled, noise=Quiet(factor)).margin > 0


class Repeating(SeededNoise):
    """Every odd draw is the one before once more."""

    draws = 0

    def lattice_gaussian(self, count: int, scale: float) -> np.ndarray:
        self.draws += 1
        if self.draws % 2:
            self.last = super().lattice_gaussian(count, scale)
        return self.last


def test_noise_that_is_used_twice_is_caught_by_differences_of_rounds() -> None:
    sampled = (GaussianSum(rounds=4, sampling=0.5, noise_multiplier=1.0),)
    assert audit_sums(sampled, noise=Quiet()).passed
    audited = audit_sums(sampled, noise=Repeating(0))
    assert audited.margin > 0.2
    assert not audited.passed


def test_rows_without_a_bound_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen("rows").passed
    original = rows.bound_rows
    monkeypatch.setattr(rows, "bound_rows", lambda r, p, b, clip: original(r, p, b, clip=False))
    audited = seen("rows")
    assert not audited.passed
    assert audited.model_based > 10 * audited.claimed


def test_a_bound_above_the_claim_is_no_pass() -> None:
    right = seen()
    values = {name: getattr(right, name) for name in right.__slots__}
    assert CanaryAudit(**values).passed
    for wrong in ({"model_based": right.claimed + 0.01}, {"assumption_free": right.claimed + 0.01}, {"margin": 0.001}):
        assert not CanaryAudit(**{**values, **wrong}).passed
    assert CanaryAudit(**{**values, "model_based": 99.0, "model_counts": False}).passed


def test_an_alarm_must_ring_three_times() -> None:
    rings = iter([seen(factor=0.5), seen(factor=0.5), seen()])
    assert audit._canaries("x", lambda: next(rings)).passed
    assert not audit._canaries("x", lambda: seen(factor=0.5)).passed


def test_shards_and_choices_have_their_canaries() -> None:
    sharded = ShardedAnswers(shards=4, rounds=6, noise_multiplier=0.5)
    assert audit_shards(sharded, noise=Quiet()).passed
    assert not audit_shards(sharded, noise=Quiet(0.3)).passed
    summed = ShardedSums(shards=4, rounds=6, noise_multiplier=2.0)
    assert audit_shards(summed, noise=Quiet()).passed
    assert not audit_shards(summed, noise=Quiet(0.3)).passed
    assert audit_choice(NoisyChoice(noise_multiplier=1.0), repeats=300, noise=Quiet()).passed
    assert not audit_choice(NoisyChoice(noise_multiplier=1.0), repeats=300, noise=Quiet(0.25)).passed


def test_one_teacher_for_a_batch_shows_where_a_batch_asks_about_one_record_often() -> None:
    class Shared(Quiet):
        def drawn_shards(self, count: int, shards: int) -> np.ndarray:
            return np.repeat(super().drawn_shards(1, shards), count)

    asked = ShardedAnswers(shards=16, rounds=128, noise_multiplier=3.0)
    assert audit_shards(asked, together=True, noise=Quiet()).passed
    assert not audit_shards(asked, together=True, noise=Shared()).passed
    assert audit_shards(asked, noise=Shared()).passed, "batches with one question about each record cannot show it"


def test_lower_bounds_hold_and_are_not_idle() -> None:
    rng = np.random.default_rng(0)
    excluded, included = rng.normal(size=20_000), rng.normal(1.0, size=20_000)
    assert 0.94 < mu_lower_bound(included, excluded, confidence=0.999) < 1.0
    assert mu_lower_bound(np.ones(9), np.zeros(9), confidence=0.999) == math.inf
    assert mu_lower_bound(excluded, included, confidence=0.999) == 0
    assert 1.0 < epsilon_lower_bound(included, excluded, 1e-5, confidence=0.999) < epsilon_of(1.0, 1e-5)
    epsilons = np.linspace(0, 5, 51)
    for mu, refuted in ((1.0, False), (0.7, True)):
        deltas = stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu)
        assert (curve_margin(included, excluded, epsilons, deltas, confidence=0.999) > 0) == refuted
        assert (curve_margin(-excluded, -included, epsilons, deltas, confidence=0.999) > 0) == refuted
    low, high = rate_bounds(0, 100, error=0.025)
    assert (low, high) == (0.0, pytest.approx(1 - 0.025**0.01))


@pytest.mark.parametrize("wrong", [{"epsilon": math.inf}, {"epsilon": 0.0}, {"confidence": 1.0}])
def test_what_cannot_be_audited_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        audit.audit_method("dp-merf", **wrong)
    with pytest.raises(UsageError, match="dp-merf"):
        audit.audit_method("dp-murf")


def test_the_laws_are_distinguished() -> None:
    rng = np.random.default_rng(1)
    right = rng.random((200, 500)) < 0.1
    shuffled = np.concatenate([rng.permuted(np.repeat([np.arange(500) // 50], 10, 0), axis=1) == k for k in range(10)])
    partition = np.concatenate([rng.permutation(500) // 50 == k for _ in range(20) for k in range(10)]).reshape(
        200, 500
    )
    assert sampling_finding("x", right, 0.1).passed
    for wrong in (shuffled, partition, rng.random((200, 500)) < 0.11, np.repeat(right[:, ::2], 2, axis=1)):
        assert not sampling_finding("x", wrong, 0.1).passed
    normal = rng.normal(size=20_000)
    assert normal_finding("x", normal).passed
    for wrong in (0.95 * normal, 1.05 * normal, rng.uniform(-(3**0.5), 3**0.5, 20_000), normal + 0.06):
        assert not normal_finding("x", wrong).passed
    draws = list(rng.normal(size=(10, 300)))
    others = list(rng.normal(size=(10, 300)))
    assert independent_finding("x", [draws, others]).passed
    mixed = [(a + b) / 2**0.5 for a, b in zip(draws, others, strict=True)]
    for wrong in (
        [[*draws, draws[3]], others],  # one draw twice
        [[draw for draw in draws[:5] for _ in range(2)], others],  # every odd draw again
        [[d for k in range(5) for d in (draws[k], mixed[k])], others],  # every odd draw half of the one before
        [[draws[0], *(d for k in range(4) for d in (others[k], -others[k]))]],  # its opposite, at odd places
        [draws, mixed],  # charges that share noise
        [[draws[0]], draws[2:], mixed[2:]],  # the second and the third charge
    ):
        assert not independent_finding("x", wrong).passed


def test_the_fixture_has_a_neighbour_of_every_kind() -> None:
    records = fixture.records()
    kinds = fixture.neighbours(records)
    assert len(kinds) >= 6
    for neighbour in kinds.values():
        changed = (neighbour.pixels != records.pixels).any((1, 2, 3)) | (neighbour.labels != records.labels)
        assert changed.sum() == 1
        assert neighbour.labels[changed] == -1
    assert (kinds["the only one of its class"].labels != 3).all()


def test_the_selfcheck_passes_and_leaves_nothing_behind(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck.tempfile, "tempdir", str(tmp_path))
    found = selfcheck.selfcheck()
    assert [f"{f.name}: {f.detail}" for f in found if not f.passed] == []
    assert {
        "notices halved noise",
        "notices shuffled batches",
        "notices repeated noise",
        "notices repeated rounds",
    } <= {f.name for f in found}
    left = [p.name for p in tmp_path.iterdir()]
    assert not [name for name in left if not name.startswith("torchinductor")]  # torch's own, at its first use


def test_the_selfcheck_fails_on_a_broken_core(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Noise.lattice_gaussian
    monkeypatch.setattr(Noise, "lattice_gaussian", lambda self, count, scale: original(self, count, scale * 0.9))
    assert not selfcheck._noise().passed
    assert not any(f.passed for f in audit.reference_findings(0.999)[:1])
    clipped = rows.bound_rows
    monkeypatch.setattr(rows, "bound_rows", lambda r, p, b, clip: clipped(r, p, b, clip=False))
    assert not selfcheck._bounds().passed
