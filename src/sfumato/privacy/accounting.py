"""From mechanisms to epsilon: privacy-loss distributions for the claim, Renyi beside it, and calibration.

Adjacency is zero-out with a public record count (REPLACE_SPECIAL in dp-accounting).
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import common, pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy.optimize import brentq
from scipy.stats import norm

from sfumato.errors import BudgetExceeded
from sfumato.privacy.mechanism import GaussianSum, Mechanism, NoisyChoice, ShardedAnswers

_HOPELESS = 300.0  # beyond this a loss distribution eats memory; the Renyi bound is then reported
_ORDERS = np.concatenate([np.arange(1.05, 12, 0.15), np.arange(12, 64), [72, 96, 128, 256, 512, 1024, 2048]])

# dp-accounting says of some Renyi orders that it leaves them out; that is safe (fewer orders, larger epsilon)
logging.getLogger("absl").setLevel(logging.ERROR)


def epsilon_pld(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The epsilon of all mechanisms together, by composed privacy-loss distributions.

    Guarantee: never below the true epsilon of the described mechanisms (losses are rounded up).
    """
    if not mechanisms:
        return 0.0
    renyi = epsilon_rdp(mechanisms, delta)
    if renyi > _HOPELESS:
        return renyi
    return float(_compose(tuple(mechanisms), _grid(renyi)).get_epsilon_for_delta(delta))


def profile(mechanisms: Sequence[Mechanism], epsilons: Sequence[float]) -> list[float]:
    """delta(epsilon) of all mechanisms together, at each of the epsilons."""
    composed = _compose(tuple(mechanisms), _grid(max(epsilons)))
    return [float(d) for d in composed.get_delta_for_epsilon(list(epsilons))]


def epsilon_rdp(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The epsilon of all mechanisms together, by Renyi divergences: a looser bound, for comparison."""
    if any(m.noise_multiplier == 0 for m in mechanisms):
        return math.inf
    total = np.zeros_like(_ORDERS)
    for mechanism in mechanisms:
        total = total + _renyi(mechanism)
    return float(compute_epsilon(_ORDERS, total, delta)[0])


def calibrate(
    mechanisms: Sequence[Mechanism], *, epsilon: float, delta: float, spent: Sequence[Mechanism] = ()
) -> tuple[Any, ...]:
    """The mechanisms with the least noise (in their shares) that keeps everything within epsilon.

    Guarantee: the calibrated mechanisms together with what was spent cost at most epsilon.
    """
    if math.isinf(epsilon):
        return tuple(m.with_scale(0.0) for m in mechanisms)

    def excess(log_scale: float, account: Any) -> float:
        return float(account([*spent, *(m.with_scale(math.exp(log_scale)) for m in mechanisms)], delta)) - epsilon

    high, low = math.log(min([1e5, *(m.most_scale * (1 - 1e-9) for m in mechanisms)])), math.log(1e-2)
    if excess(high, epsilon_rdp) > 0 and excess(high, epsilon_pld) > 0:
        already = epsilon_pld(spent, delta)
        raise BudgetExceeded(
            f"Expected a budget that can pay for this plan, got epsilon {epsilon:g} with {already:.4g} already spent.",
            fix="ask for a larger epsilon, or for fewer or cheaper questions",
        )
    if excess(high, epsilon_rdp) <= 0 and excess(low, epsilon_rdp) > 0:
        # Renyi is cheap and pessimistic: its answer bounds the search from above, so that no loss
        # distribution is ever built at a noise far too small for memory.
        high = brentq(excess, low, high, args=(epsilon_rdp,), xtol=1e-3) + 2e-3
    step = 0.12  # a loss distribution asks for about this much less noise than Renyi does
    while excess(low := high - step, epsilon_pld) <= 0 and low > math.log(1e-3):
        high, step = low, 2 * step
    best = brentq(excess, low, high, args=(epsilon_pld,), xtol=1e-5)
    while excess(best, epsilon_pld) > 0:
        best += 1e-5
    return tuple(m.with_scale(math.exp(best)) for m in mechanisms)


def _grid(epsilon: float) -> float:
    """Privacy losses are rounded up to multiples of this: about 1e-4 of epsilon, so that time stays even."""
    return 1e-4 if epsilon <= 4 else 1e-3 if epsilon <= 40 else 1e-2


@functools.lru_cache(maxsize=64)  # of frozen values alone: planning, charging and certifying ask for the same ones
def _compose(mechanisms: tuple[Mechanism, ...], grid: float) -> Any:
    """One loss distribution; full-batch Gaussian rounds compose exactly to one Gaussian, so they are merged."""
    precision, total = 0.0, None
    for mechanism in mechanisms:
        if isinstance(mechanism, GaussianSum) and mechanism.sampling == 1:
            precision += mechanism.rounds / _noise(mechanism) ** 2
        else:
            part = _loss(mechanism, grid).self_compose(mechanism.rounds)
            total = part if total is None else total.compose(part)
    if precision:
        part = pld.from_gaussian_mechanism(
            precision**-0.5,
            value_discretization_interval=grid,
            neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
        )
        total = part if total is None else total.compose(part)
    return pld.identity(grid) if total is None else total


def _loss(mechanism: Mechanism, grid: float) -> Any:
    """The loss distribution of one round."""
    noise = _noise(mechanism)
    if isinstance(mechanism, GaussianSum):
        return pld.from_gaussian_mechanism(
            noise,
            sampling_prob=mechanism.sampling,
            value_discretization_interval=grid,
            neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
        )
    if isinstance(mechanism, NoisyChoice):
        pure = common.DifferentialPrivacyParameters(1 / noise, 0.0)
        return pld.from_privacy_parameters(pure, value_discretization_interval=grid)
    if isinstance(mechanism, ShardedAnswers):
        return _sharded_loss(noise, 1 / mechanism.shards, grid)
    raise TypeError(f"No accounting for {type(mechanism).__name__}.")


def _sharded_loss(noise: float, rate: float, grid: float) -> Any:
    """One answer of a randomly drawn teacher (Zhu, Dong and Wang 2022, Theorem 11, replacement form).

    With P = N(1, s^2) and Q = N(0, s^2) the profile is H_a((1-q)Q + qP || Q) for a >= 1 and
    H_a(P || (1-q)P + qQ) for a < 1, where H_a is the hockey-stick divergence.
    """
    reach = math.log1p(rate * math.expm1((2 * 9 * noise + 1) / (2 * noise**2)))  # losses beyond 9 sigma
    steps = math.ceil(min(reach, 60.0) / grid)
    losses = np.arange(-steps, steps + 1)  # in units of the grid
    a = np.exp(np.abs(losses * grid))
    # where (1-q) + q P/Q = a, and the tails of P and Q beyond it; the second pair mirrors the first
    crossing = noise**2 * np.log1p((a - 1) / rate) + 0.5
    tail_q, tail_p = norm.sf(crossing / noise), norm.sf((crossing - 1) / noise)
    above = (1 - rate) * tail_q + rate * tail_p - a * tail_q
    mirrored = above / a + 1 - 1 / a  # H_{1/a}(P || R) = 1 - 1/a + H_a(R || P) / a
    deltas = np.clip(np.where(losses >= 0, above, mirrored), 0, 1)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, losses, deltas))


@functools.lru_cache(maxsize=256)
def _renyi(mechanism: Mechanism) -> Any:
    noise = _noise(mechanism)
    if isinstance(mechanism, NoisyChoice):
        pure = 1 / noise  # randomised response is the worst pure mechanism (Bun and Steinke 2016)
        log_p, log_q = -math.log1p(math.exp(-pure)), -math.log1p(math.exp(pure))
        one = _ORDERS * log_p + (1 - _ORDERS) * log_q
        two = _ORDERS * log_q + (1 - _ORDERS) * log_p
        return mechanism.rounds * np.logaddexp(one, two) / (_ORDERS - 1)
    relation, event = NeighboringRelation.REPLACE_SPECIAL, dp_event.GaussianDpEvent(noise)
    if isinstance(mechanism, ShardedAnswers):  # whole shards are replaced: the safe reading of the same fact
        relation = NeighboringRelation.REPLACE_ONE
        event = dp_event.SampledWithoutReplacementDpEvent(mechanism.shards, 1, event)
    elif isinstance(mechanism, GaussianSum) and mechanism.sampling < 1:
        event = dp_event.PoissonSampledDpEvent(mechanism.sampling, event)
    accountant = RdpAccountant(_ORDERS, relation)
    accountant.compose(event, mechanism.rounds)
    return accountant.rdp


def _noise(mechanism: Mechanism) -> float:
    if not mechanism.noise_multiplier:
        raise BudgetExceeded(f"Expected a {mechanism.kind} with noise, got {mechanism.noise_multiplier}.")
    return mechanism.noise_multiplier
