"""Lower bounds on epsilon from the scores of canaries that were in the data and of canaries that were not.

There are two bounds. Model-based: where scores are Gaussian, the distance of the two means in standard deviations
bounds mu (Dong, Roth and Su 2022), and mu gives epsilon in closed form (Balle and Wang 2018). Assumption-free: a
threshold found on one half of the scores is judged on the other by exact binomial intervals (Clopper and Pearson
1934), and compared with every point of the claimed curve delta(epsilon), because one point alone misses most faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sfumato.release.recount import gaussian_epsilon
from sfumato.statistics.intervals import binomial_bounds

Floats = NDArray[np.float64]
THRESHOLDS = 200


def mu_lower_bound(included: Floats, excluded: Floats, *, confidence: float) -> float:
    """How far apart two Gaussians of equal spread are at least, in standard deviations.

    The error has a part for the two means and one for the spread, which is estimated as well
    (Hedges and Olkin 1985, the large-sample form).
    """
    n, m = len(included), len(excluded)
    pooled = ((n - 1) * included.var(ddof=1) + (m - 1) * excluded.var(ddof=1)) / (n + m - 2)
    difference = float(included.mean() - excluded.mean())
    if pooled == 0:
        return math.inf if difference > 0 else 0.0
    distance = difference / math.sqrt(pooled)
    error = math.sqrt(1 / n + 1 / m + distance**2 / (2 * (n + m - 2)))
    return max(0.0, distance - float(stats.norm.ppf(confidence)) * error)


def normality(included: Floats, excluded: Floats) -> float:
    """The probability of residuals as far from a normal law as these, if theirs is one; zero where nothing varies."""
    residuals = np.concatenate([included - included.mean(), excluded - excluded.mean()])
    spread = float(residuals.std())
    return float(stats.kstest(residuals / spread, "norm").pvalue) if spread > 0 else 0.0


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of Gaussians that are mu standard deviations apart."""
    return math.inf if math.isinf(mu) else gaussian_epsilon(mu, delta)


def curve_margin(
    included: Floats, excluded: Floats, epsilons: Sequence[float], deltas: Sequence[float], *, confidence: float
) -> float:
    """By how much the attacker's success exceeds the claimed curve somewhere; above zero the claim is refuted.

    (epsilon, delta)-DP for all points of the curve means TPR <= e^epsilon FPR + delta(epsilon) for any test.
    """
    growth, allowed = np.exp(np.asarray(epsilons)), np.asarray(deltas)

    def margins(low: Floats, high: Floats) -> Floats:
        over: Floats = (low[:, None] - growth * high[:, None] - allowed).max(axis=1)
        return over

    return _judged(included, excluded, margins, confidence)


def epsilon_lower_bound(included: Floats, excluded: Floats, delta: float, *, confidence: float) -> float:
    """The least epsilon that is compatible with the scores at this delta, whatever their law."""

    def least(low: Floats, high: Floats) -> Floats:
        return np.log(np.maximum(low - delta, 1e-300)) - np.log(high)

    return max(0.0, _judged(included, excluded, least, confidence))


def _judged(included: Floats, excluded: Floats, worth: Callable[[Floats, Floats], Floats], confidence: float) -> float:
    """The worth of the best threshold of one half of the scores, on the other half."""
    thresholds = np.quantile(np.concatenate([included[::2], excluded[::2]]), np.linspace(0.0005, 0.9995, THRESHOLDS))
    error = (1 - confidence) / 2  # one share for each of the two rates
    chosen = int(np.argmax(worth(*_rates(included[::2], excluded[::2], thresholds, error))))
    return float(worth(*_rates(included[1::2], excluded[1::2], thresholds, error))[chosen])


def _rates(included: Floats, excluded: Floats, thresholds: Floats, error: float) -> tuple[Floats, Floats]:
    """True positive rates from below and false ones from above; first guessing "in" above, then "out" below."""
    n, m = len(included), len(excluded)
    below_in = np.searchsorted(np.sort(included), thresholds, side="right")
    below_out = np.searchsorted(np.sort(excluded), thresholds, side="right")
    true = np.concatenate([binomial_bounds(n - below_in, n, error)[0], binomial_bounds(below_out, m, error)[0]])
    false = np.concatenate([binomial_bounds(m - below_out, m, error)[1], binomial_bounds(below_in, n, error)[1]])
    return true, false
