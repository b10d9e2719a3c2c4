"""From mechanisms to epsilon: by privacy-loss distributions (the claim), by Renyi divergence, and calibration.

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
from sfumato.privacy.mechanism import GaussianSum, Mechanism, NoisyChoice, ShardedAnswers, ShardedSums

_MOST_EPSILON = 300.0  # beyond this a loss distribution takes too much memory; the Renyi bound is reported instead
_ORDERS = np.concatenate([np.arange(1.05, 12, 0.15), np.arange(12, 64), [72, 96, 128, 256, 512, 1024, 2048]])

# dp-accounting logs a warning when it skips a Renyi order; that is safe (fewer orders, larger epsilon)
logging.getLogger("absl").setLevel(logging.ERROR)


def epsilon_pld(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """The epsilon of all mechanisms together, by composed privacy-loss distributions.

    Guarantee: never below the true epsilon of the described mechanisms (losses are rounded up).
    """
    if not mechanisms:
        return 0.0
    renyi = epsilon_rdp(mechanisms, delta)
    if renyi > _MOST_EPSILON:
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
    return _calibrated(tuple(mechanisms), epsilon, delta, tuple(spent))


@functools.lru_cache(maxsize=64)  # a plan, its release, and the same release with another seed ask for the same
def _calibrated(
    mechanisms: tuple[Mechanism, ...], epsilon: float, delta: float, spent: tuple[Mechanism, ...]
) -> tuple[Any, ...]:

    def excess(log_scale: float, account: Any) -> float:
        return float(account([*spent, *(m.with_scale(math.exp(log_scale)) for m in mechanisms)], delta)) - epsilon

    low = math.log(1e-2)
    high = math.log(min([1e5, *(m.most_scale * (1 - 1e-9) for m in mechanisms)]))
    if excess(high, epsilon_rdp) > 0 and excess(high, epsilon_pld) > 0:
        already = epsilon_pld(spent, delta)
        raise BudgetExceeded(
            f"Expected a budget that can pay for this plan, got epsilon {epsilon:g} with {already:.4g} already spent.",
            fix="ask for a larger epsilon, or for fewer or cheaper questions",
        )
    if excess(high, epsilon_rdp) <= 0 and excess(low, epsilon_rdp) > 0:
        # the Renyi bound is fast and pessimistic: its solution is an upper end for the search, so that no loss
        # distribution is computed at a noise so small that it would not fit in memory
        high = brentq(excess, low, high, args=(epsilon_rdp,), xtol=1e-3) + 2e-3
    step = 0.12  # loss distributions typically need this much less log noise than the Renyi bound
    low = high - step
    while excess(low, epsilon_pld) <= 0 and low > math.log(1e-3):
        high = low
        step *= 2
        low = high - step
    best = brentq(excess, low, high, args=(epsilon_pld,), xtol=1e-5)
    while excess(best, epsilon_pld) > 0:
        best += 1e-5
    return tuple(m.with_scale(math.exp(best)) for m in mechanisms)


def _grid(epsilon: float) -> float:
    """Privacy losses are rounded up to multiples of this. It grows with epsilon, so that run times stay similar."""
    if epsilon <= 4:
        return 1e-4
    if epsilon <= 40:
        return 1e-3
    return 1e-2


@functools.lru_cache(maxsize=64)  # planning, charging and certifying compose the same mechanisms
def _compose(mechanisms: tuple[Mechanism, ...], grid: float) -> Any:
    """One loss distribution; Gaussian rounds without sampling compose exactly to one Gaussian, so they are merged."""
    precision = 0.0  # of the one Gaussian that all rounds without sampling make together
    total = None
    for mechanism in mechanisms:
        if isinstance(mechanism, ShardedSums) or (isinstance(mechanism, GaussianSum) and mechanism.sampling == 1):
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
    reach = math.log1p(rate * math.expm1((2 * 9 * noise + 1) / (2 * noise**2)))  # the largest loss within 9 sigma
    steps = math.ceil(min(reach, 60.0) / grid)
    losses = np.arange(-steps, steps + 1)  # in units of the grid
    a = np.exp(np.abs(losses * grid))
    # where (1-q) + q P/Q = a, and the tails of P and Q beyond it; the second pair mirrors the first
    crossing = noise**2 * np.log1p((a - 1) / rate) + 0.5
    tail_q = norm.sf(crossing / noise)
    tail_p = norm.sf((crossing - 1) / noise)
    above = (1 - rate) * tail_q + rate * tail_p - a * tail_q
    mirrored = above / a + 1 - 1 / a  # H_{1/a}(P || R) = 1 - 1/a + H_a(R || P) / a
    deltas = np.clip(np.where(losses >= 0, above, mirrored), 0, 1)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, losses, deltas))


@functools.lru_cache(maxsize=256)
def _renyi(mechanism: Mechanism) -> Any:
    noise = _noise(mechanism)
    if isinstance(mechanism, NoisyChoice):
        pure = 1 / noise  # randomised response is the worst pure mechanism (Bun and Steinke 2016)
        log_p = -math.log1p(math.exp(-pure))
        log_q = -math.log1p(math.exp(pure))
        likely = _ORDERS * log_p + (1 - _ORDERS) * log_q
        unlikely = _ORDERS * log_q + (1 - _ORDERS) * log_p
        return mechanism.rounds * np.logaddexp(likely, unlikely) / (_ORDERS - 1)
    relation = NeighboringRelation.REPLACE_SPECIAL
    event = dp_event.GaussianDpEvent(noise)
    if isinstance(mechanism, ShardedAnswers):  # an upper bound: as if a whole shard were replaced
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
