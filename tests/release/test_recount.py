"""The second accountant against closed forms, published numbers and dp-accounting."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.stats import binom, norm

from sfumato.privacy import epsilon_pld, mechanism_from_dict
from sfumato.release.recount import Composition, recount


def gaussian(noise: float, *, rounds: int = 1, sampling: float = 1.0) -> dict[str, Any]:
    return {"kind": "gaussian-sum", "rounds": rounds, "sampling": sampling, "noise_multiplier": noise}


def choice(noise: float, *, rounds: int = 1) -> dict[str, Any]:
    return {"kind": "noisy-choice", "candidates": 5, "rounds": rounds, "noise_multiplier": noise}


def sharded(noise: float, *, shards: int, rounds: int = 1) -> dict[str, Any]:
    return {"kind": "sharded-answers", "shards": shards, "rounds": rounds, "noise_multiplier": noise}


@pytest.mark.parametrize(
    ("mechanism", "delta", "epsilon"),
    [
        (gaussian(4.119), 1.666e-6, 1.0),
        (gaussian(0.532), 1.666e-6, 10.0),
        (gaussian(1.0, sampling=1 / 8, rounds=16), 1e-5, 4.015),
        (gaussian(5.0, sampling=4096 / 60000, rounds=2200), 1e-5, 2.680),
        (gaussian(13.58, sampling=1 / 14, rounds=2100), 1.666e-6, 1.0),
    ],
)
def test_published_values(mechanism: dict[str, Any], delta: float, epsilon: float) -> None:
    assert recount([mechanism], delta) == pytest.approx(epsilon, rel=0.01)


def test_full_batch_gaussians_add_up_in_closed_form() -> None:
    many = recount([gaussian(4.0, rounds=3), gaussian(2.0)], 1e-6)
    assert many == pytest.approx(recount([gaussian((3 / 16 + 1 / 4) ** -0.5)], 1e-6), rel=1e-8)


def test_the_grid_agrees_with_the_closed_form_at_every_delta() -> None:
    # A negligible sampled mechanism forces the FFT path.
    for delta in (1e-3, 1e-6, 1e-12, 1e-30, 1e-100):
        exact = recount([gaussian(1.5, rounds=4)], delta)
        gridded = recount([gaussian(1.5, rounds=4), gaussian(1e6, sampling=1e-6)], delta)
        assert exact * (1 - 1e-9) <= gridded <= exact * 1.002


@pytest.mark.parametrize(("rate", "noise"), [(0.1, 1.0), (0.01, 0.7), (0.5, 5.0), (0.001, 0.5)])
@pytest.mark.parametrize("delta", [1e-4, 1e-8])
def test_one_sampled_round_is_never_below_its_closed_form(rate: float, noise: float, delta: float) -> None:
    def true_delta(epsilon: float) -> float:  # mixture against Q; the other direction is smaller
        x = noise**2 * math.log1p(math.expm1(epsilon) / rate) + 0.5
        q, p = norm.sf(x / noise), norm.sf((x - 1) / noise)
        return float((1 - rate) * q + rate * p - math.exp(epsilon) * q)

    exact = brentq(lambda e: true_delta(e) - delta, 1e-9, 200, xtol=1e-12) if true_delta(1e-9) > delta else 0.0
    for counted in (
        recount([gaussian(noise, sampling=rate)], delta),
        recount([sharded(noise, shards=round(1 / rate))], delta),  # the same for losses above 0
    ):
        assert exact * (1 - 1e-6) <= counted <= exact * 1.002 + 1e-4


@pytest.mark.parametrize(("noise", "rounds"), [(3.0, 1), (2.0, 7), (10.0, 100), (0.2, 3)])
def test_noisy_choice_is_randomised_response(noise: float, rounds: int) -> None:
    pure, delta = 1 / noise, 1e-6
    likely = 1 / (1 + math.exp(-pure))

    def true_delta(epsilon: float) -> float:
        losses = [(2 * k - rounds) * pure for k in range(rounds + 1)]
        masses = binom.pmf(range(rounds + 1), rounds, likely)
        return sum(m * max(0.0, -math.expm1(epsilon - loss)) for m, loss in zip(masses, losses, strict=True))

    exact = brentq(lambda e: true_delta(e) - delta, 0, rounds * pure, xtol=1e-12)
    assert exact * (1 - 1e-6) <= recount([choice(noise, rounds=rounds)], delta) <= exact * 1.002
    assert recount([choice(noise, rounds=rounds)], 0.0) == pytest.approx(rounds * pure)


def fine_pld(parts: list[dict[str, Any]], delta: float, scale: float) -> float:
    """dp-accounting on a grid that is fine for this epsilon."""
    step = min(1e-3, max(1e-5, 2e-4 * scale))
    total = None
    for part in parts:
        one = pld.from_gaussian_mechanism(
            part["noise_multiplier"],
            sampling_prob=part["sampling"],
            value_discretization_interval=step,
            neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
        ).self_compose(part["rounds"])
        total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def configurations() -> list[tuple[list[dict[str, Any]], float]]:
    draw, found = random.Random(2), []
    while len(found) < 20:
        parts = [
            gaussian(
                10 ** draw.uniform(-0.2, 1),
                sampling=10 ** draw.uniform(-3, -0.1),
                rounds=int(10 ** draw.uniform(0, 3)),
            )
            for _ in range(draw.choice([1, 1, 2]))
        ]
        delta = 10 ** draw.uniform(-8, -4)
        if 0.05 < recount(parts, delta) < 30:
            found.append((parts, delta))
    return found


def test_twenty_random_configurations_agree_with_dp_accounting() -> None:
    for parts, delta in configurations():
        counted = recount(parts, delta)
        other = fine_pld(parts, delta, counted)
        assert other * (1 - 0.003) <= counted <= other * 1.01 + 0.003, (parts, delta, counted, other)


@pytest.mark.parametrize(
    "mechanisms",
    [
        [sharded(2.0, shards=10, rounds=100)],
        [sharded(0.7, shards=200, rounds=1000)],
        [sharded(2.0, shards=5, rounds=20), gaussian(10.0, rounds=4), choice(8.0, rounds=3)],
        [gaussian(3.0), gaussian(1.0, sampling=0.02, rounds=500), choice(8.0)],
    ],
)
def test_mixtures_agree_with_the_claim_s_accountant(mechanisms: list[dict[str, Any]]) -> None:
    other = epsilon_pld([mechanism_from_dict(m) for m in mechanisms], 1e-6)
    assert other * (1 - 0.003) <= recount(mechanisms, 1e-6) <= other * 1.01 + 0.003


def test_more_noise_never_costs_more() -> None:
    costs = [recount([gaussian(s, sampling=0.05, rounds=300)], 1e-5) for s in (0.6, 0.8, 1, 1.5, 2, 4, 8)]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("noise", [0.0, None, float("nan"), -1.0])
def test_no_noise_is_infinite(noise: Any) -> None:
    assert recount([gaussian(1.0), gaussian(noise)], 1e-5) == math.inf


def test_edges() -> None:
    assert recount([], 1e-5) == 0
    assert recount([gaussian(1.0)], 0.0) == math.inf
    assert recount([gaussian(1.0, sampling=0.1)], 0.0) == math.inf
    assert recount([gaussian(1e9)], 0.5) == 0
    assert recount([sharded(2.0, shards=1)], 1e-5) == pytest.approx(recount([gaussian(2.0)], 1e-5))
    with pytest.raises(ValueError, match="kind"):
        Composition([{**gaussian(1.0), "kind": "laplace"}])
