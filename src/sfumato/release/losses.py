"""Privacy losses of one round, as pairs of distributions put on a grid without ever understating them.

A loss is log(A/B) at an outcome drawn from A. With P = N(1, s^2) and Q = N(0, s^2), both Gaussian kinds have the
likelihood ratio r(x) = 1 - q + q exp((2x - 1) / 2s^2), which grows in x, so every bin of losses is an interval
of x in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


class Loss(Protocol):
    """One round of one mechanism."""

    def variance(self) -> float: ...
    def width(self, reach: float) -> float: ...
    def on_grid(self, step: float, reach: float) -> tuple[int, Floats, float]:
        """First grid index, mass at each grid point from there, and the mass whose loss counts as infinite."""
        ...


@dataclass(frozen=True, slots=True)
class PoissonGaussian:
    """A Gaussian on a Poisson sample of rate q: the mixture against Q (record removed), or Q against it."""

    rate: float
    noise: float
    removed: bool

    def variance(self) -> float:
        x, weights = _quadrature(self.noise, self.rate if self.removed else 0.0)
        losses = _log_ratio(x, self.rate, self.noise)
        mean = float(weights @ losses)
        return float(weights @ (losses - mean) ** 2)

    def width(self, reach: float) -> float:
        low, high = _ends(self.rate, self.noise, reach)
        return high - low

    def on_grid(self, step: float, reach: float) -> tuple[int, Floats, float]:
        low, high = _ends(self.rate, self.noise, reach)
        first, last = math.floor(low / step), math.ceil(high / step)
        edges = _grid(first, last, step)  # log r at the bins' ends
        x = _outcome(edges, self.rate, self.noise)
        q_mass = _between(x, 0.0, self.noise)
        mixture = _mixture(x, self.rate, self.noise)
        far = float(ndtr(-reach))  # bound on each distribution's mass beyond the last edge
        if self.removed:
            masses = _split(mixture, q_mass, edges, step)
            masses[0] += _left(x[0], self.rate, self.noise)  # rounded up to the first edge
            return first, masses, far
        # Q against the mixture: losses are -log r, so the grid is reversed.
        masses = _split(q_mass[::-1], mixture[::-1], -edges[::-1], step)
        masses[0] += far
        return -last, masses, _left(x[0], 0.0, self.noise)


@dataclass(frozen=True, slots=True)
class ShardedGaussian:
    """One answer of a teacher drawn from K = 1/q (Zhu, Dong, Wang 2022, Theorem 11, replacement form).

    The profile takes losses above 0 from (mixture, Q) and losses below 0 from (P, (1-q)P + qQ), which mirrored is
    (Q, mixture); what is left sits at 0. It is its own mirror image, so one direction covers both.
    """

    rate: float
    noise: float

    def variance(self) -> float:
        x, weights = _quadrature(self.noise, self.rate)
        losses = np.maximum(_log_ratio(x, self.rate, self.noise), 0.0)
        return 2 * float(weights @ losses**2)

    def width(self, reach: float) -> float:
        return 2 * _ends(self.rate, self.noise, reach)[1]

    def on_grid(self, step: float, reach: float) -> tuple[int, Floats, float]:
        last = max(1, math.ceil(_ends(self.rate, self.noise, reach)[1] / step))
        edges = _grid(0, last, step)
        x = _outcome(edges, self.rate, self.noise)
        q_mass = _between(x, 0.0, self.noise)
        mixture = _mixture(x, self.rate, self.noise)
        far = float(ndtr(-reach))
        masses = np.zeros(2 * last + 1)
        masses[last:] += _split(mixture, q_mass, edges, step)
        masses[: last + 1] += _split(q_mass[::-1], mixture[::-1], -edges[::-1], step)
        masses[last] += max(0.0, 1.0 - far - float(masses.sum()))  # all mass is counted; `far` is infinite loss
        return -last, masses, far


@dataclass(frozen=True, slots=True)
class TwoPoint:
    """Pure epsilon-DP at its worst: randomised response."""

    epsilon: float

    def variance(self) -> float:
        return self.epsilon**2 / math.cosh(min(self.epsilon / 2, 300.0)) ** 2

    def width(self, reach: float) -> float:
        return 2 * self.epsilon

    def on_grid(self, step: float, reach: float) -> tuple[int, Floats, float]:
        # An atom that is a grid point up to rounding counts as on it.
        last = math.ceil(self.epsilon / step * (1 - 1e-12))
        likely = 1 / (1 + math.exp(-self.epsilon))
        masses = np.zeros(2 * last + 1)
        # Between grid points an atom splits like a bin that holds nothing else.
        up = min(1.0, math.expm1((last - 1) * step - self.epsilon) / math.expm1(-step))
        back = max(0.0, math.expm1(self.epsilon - last * step) / math.expm1(-step))
        masses[-1] += likely * up
        masses[-2] += likely * (1 - up)
        masses[1] += (1 - likely) * back
        masses[0] += (1 - likely) * (1 - back)
        return -last, masses, 0.0


def _grid(first: int, last: int, step: float) -> Floats:
    return np.arange(first, last + 1, dtype=np.float64) * step


def _ends(rate: float, noise: float, reach: float) -> tuple[float, float]:
    """log r over the outcomes that are within reach of both means."""
    ends = _log_ratio(np.array([-reach * noise, 1 + reach * noise]), rate, noise)
    return float(ends[0]), float(ends[1])


def _log_ratio(x: Floats, rate: float, noise: float) -> Floats:
    exponent = (2 * x - 1) / (2 * noise**2)
    if rate == 1:
        return exponent
    small = np.log1p(rate * np.expm1(np.minimum(exponent, 50.0)))
    return np.where(exponent < 50, small, np.logaddexp(math.log1p(-rate), math.log(rate) + exponent))


def _outcome(log_ratio: Floats, rate: float, noise: float) -> Floats:
    """The x at which log r takes this value; minus infinity where r is never that small."""
    if rate == 1:
        return noise**2 * log_ratio + 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.maximum(np.expm1(np.minimum(log_ratio, 50.0)) / rate, -1.0)
        large = log_ratio - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(log_ratio, 50.0)))
        return noise**2 * np.where(log_ratio < 50, np.log1p(inner), large) + 0.5


def _between(x: Floats, mean: float, noise: float) -> Floats:
    """Gaussian mass between neighbouring x, from whichever tail is the more precise."""
    z = (x - mean) / noise
    right = z[:-1] > 0
    mass: Floats = np.where(right, ndtr(-z[:-1]) - ndtr(-z[1:]), ndtr(z[1:]) - ndtr(z[:-1]))
    return mass


def _mixture(x: Floats, rate: float, noise: float) -> Floats:
    return (1 - rate) * _between(x, 0.0, noise) + rate * _between(x, 1.0, noise)


def _left(x: float, rate: float, noise: float) -> float:
    return float((1 - rate) * ndtr(x / noise) + rate * ndtr((x - 1) / noise))


def _split(a: Floats, b: Floats, edges: Floats, step: float) -> Floats:
    """Move each bin's mass to its two ends so that both A and B keep their mass: the chord of the profile."""
    with np.errstate(over="ignore", invalid="ignore"):
        up = (a - np.exp(edges[:-1]) * b) / -math.expm1(-step)
    # Where exp overflows, b is beyond double precision: rounding all mass up is safe.
    up = np.where(np.isfinite(up), np.clip(up, 0.0, a), a)
    masses = np.zeros(edges.size)
    masses[1:] += up
    masses[:-1] += a - up
    return masses


def _quadrature(noise: float, rate: float) -> tuple[Floats, Floats]:
    """Outcomes and normalised weights of (1 - rate) Q + rate P, fine enough for a variance."""
    x = np.concatenate([np.linspace(-9, 9, 2001) * noise, 1 + np.linspace(-9, 9, 2001) * noise])
    x.sort()
    z = x / noise
    density = (1 - rate) * np.exp(-(z**2) / 2) + rate * np.exp(-((z - 1 / noise) ** 2) / 2)
    weights = density * np.gradient(x)
    return x, weights / weights.sum()
