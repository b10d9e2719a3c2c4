"""Exact intervals for probabilities (Clopper and Pearson 1934)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


def rate_bounds(hits: int, trials: int, *, error: float) -> tuple[float, float]:
    """Below and above a probability, each wrong with probability at most `error` (Clopper and Pearson 1934)."""
    low, high = binomial_bounds(np.array([hits]), trials, error)
    return float(low[0]), float(high[0])


def binomial_bounds(hits: NDArray[np.int64], trials: int, error: float) -> tuple[Floats, Floats]:
    """Below and above probabilities, each wrong with probability at most `error` (Clopper and Pearson 1934)."""
    low = np.where(hits > 0, stats.beta.ppf(error, np.maximum(hits, 1), trials - hits + 1), 0.0)
    high = np.where(hits < trials, stats.beta.ppf(1 - error, hits + 1, np.maximum(trials - hits, 1)), 1.0)
    return low, high
