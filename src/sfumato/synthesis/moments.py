"""From noisy sums to a mixture of Gaussians for each class: what noise put in is taken out as far as it can be known.

All of it is post-processing. The noise is known, so signal and noise are told apart by its size alone: rings of
frequencies are shrunk as a whole (Wiener), eigenvalues that noise alone could have made are dropped and the others
corrected (spiked random matrices: Benaych-Georges and Nadakuditi 2011), and a class's own covariance is trusted
as far as the deviations of all its entries from the pooled one exceed their noise (empirical Bayes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_AXES = 4
FLOOR = 0.05  # of the smallest kept variance: below, a direction still varies a little
WITHIN = 0.15  # the least that cells leave of the smallest variance


def shortened(vector: Tensor, longest: float) -> Tensor:
    """The vector, cut to the longest length that is allowed."""
    scale: Tensor = longest / torch.linalg.vector_norm(vector).clamp(min=longest)
    return vector * scale


def packed(vector: Tensor) -> Tensor:
    """The upper triangle of v v^T as a row of norm |v|^2: what is on both sides counts sqrt(2), and is asked once."""
    rows, columns = torch.triu_indices(len(vector), len(vector))
    weights = torch.where(rows == columns, 1.0, math.sqrt(2))
    return vector[rows] * vector[columns] * weights


def unpacked(rows: Tensor) -> Tensor:
    """Symmetric matrices (..., n, n) of packed rows (..., n (n + 1) / 2)."""
    size = (math.isqrt(8 * rows.shape[-1] + 1) - 1) // 2
    down, across = torch.triu_indices(size, size)
    values = rows * torch.where(down == across, 1.0, math.sqrt(0.5))
    matrices = rows.new_zeros(*rows.shape[:-1], size, size)
    matrices[..., down, across] = values
    matrices[..., across, down] = values
    return matrices


def shrunken(rows: Tensor, bands: Tensor, variances: Tensor) -> Tensor:
    """Rows (k, d) without most of their noise, of variance (k,), after Wiener.

    In each ring of frequencies the energy beyond that of noise is signal, and so large a part of a row is kept.
    """
    _, ring = torch.unique(bands, return_inverse=True)
    rings = torch.nn.functional.one_hot(ring).to(rows.dtype)  # (d, rings)
    energy = rows.square() @ rings / rings.sum(0)  # (k, rings)
    precision = 1 / variances.clamp(min=1e-30)
    signal = ((precision / precision.sum()) @ (energy - variances[:, None])).clamp(min=0)
    return rows * (signal / (signal + variances[:, None] + 1e-30))[:, ring]


def spectrum(moments: Tensor, *, deviation: float, most: int) -> tuple[Tensor, Tensor]:
    """Axes (d, r) and variances (r,) of a noisy matrix of second moments that stand out of noise of this deviation.

    Noise of variance s^2 off the diagonal alone has eigenvalues up to 2 s sqrt(d), and lifts a true one t to
    t + s^2 d / t; that is undone.
    """
    values, axes = torch.linalg.eigh(moments)
    values, axes = values.flip(0), axes.flip(1)
    edge = 2 * deviation * math.sqrt(len(moments))
    kept = max(LEAST_AXES, int((values > 1.05 * edge).sum()))
    kept = min(kept, most, len(values))
    values = values[:kept].clamp(min=max(edge, float(values[0]) * 1e-6, 1e-12))
    return axes[:, :kept], (values + (values.square() - edge**2).clamp(min=0).sqrt()) / 2


def class_covariance(own: Tensor, pooled: Tensor, *, deviation: float) -> tuple[Tensor, Tensor]:
    """Variances and axes of one class from its own noisy moments and the pooled variances (r,)."""
    scale = torch.outer(pooled, pooled)  # the squared size that an entry may be expected to have
    away = own - torch.diag(pooled)
    signal = (away.square().sum() - deviation**2 * away.numel()).clamp(min=0) / scale.sum()
    trusted = signal * scale / (signal * scale + deviation**2 + 1e-30)
    values, axes = torch.linalg.eigh(torch.diag(pooled) + trusted * away)
    return values.clamp(min=FLOOR * float(pooled.min())), axes


@dataclass(frozen=True)
class Cells:
    """One class as a mixture, in coordinates along its own axes: weights (m,), centres (m, r), spread (r, r)."""

    weights: Tensor
    centres: Tensor
    spread: Tensor  # a square root of the covariance within a cell

    def draw(self, count: int, draw: torch.Generator) -> Tensor:
        cells = torch.multinomial(self.weights, count, replacement=True, generator=draw)
        return self.centres[cells] + torch.randn(count, len(self.spread), generator=draw) @ self.spread.T


def first_centres(count: int, variances: Tensor, draw: torch.Generator) -> Tensor:
    """Where cells begin: drawn like the class itself, a little inside."""
    return 0.8 * torch.randn(count, len(variances), generator=draw) * variances.sqrt()


def nearest_cell(point: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    """The cell of one point (r,), where all axes count alike but the faintest."""
    weights = 1 / torch.maximum(variances, 0.02 * variances.amax())
    return ((point - centres).square() @ weights).argmin()


def moved_centres(sums: Tensor, sizes: Tensor, *, deviation: float) -> Tensor:
    """Centres (m, r) from noisy sums and sizes; an axis whose centres differ by noise alone becomes flat."""
    means = sums / sizes[:, None]
    noise = deviation**2 * (1 / sizes.square()).mean()
    energy = means.square().mean(0)
    return means * ((energy - noise) / energy.clamp(min=1e-12)).clamp(0, 1)


def cells_of(centres: Tensor, sizes: Tensor, variances: Tensor) -> Cells:
    """Cells that together have mean zero and the class's covariance: what lies between them is not within them."""
    weights = sizes / sizes.sum()
    centres = centres - weights @ centres
    within = torch.diag(variances) - (centres.T * weights) @ centres
    values, axes = torch.linalg.eigh(within)
    values = values.clamp(min=WITHIN * float(variances.min()))
    return Cells(weights, centres, axes * values.sqrt())


@dataclass(frozen=True)
class Mixture:
    """Every class as a mixture of Gaussians around its mean, in codes whose coarse part varies."""

    means: Tensor  # (k, d)
    coarse: Tensor  # where in a code the axes apply
    axes: Tensor  # (k, coarse, r)
    cells: list[Cells]

    def codes(self, labels: Tensor, draw: torch.Generator) -> Tensor:  # (n,) -> (n, d)
        codes = self.means[labels]
        for label in range(len(self.cells)):
            rows = (labels == label).nonzero()[:, 0]
            drawn = self.cells[label].draw(len(rows), draw) @ self.axes[label].T
            codes[rows[:, None], self.coarse] += drawn
        return codes
