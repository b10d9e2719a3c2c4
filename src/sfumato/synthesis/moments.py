"""From noisy sums to a mixture of Gaussians for each class, with the noise reduced.

All of it is post-processing, and it uses that the variance of the noise is known. Means are shrunk in bands of
frequencies (Wiener). Eigenvalues that noise alone could have produced are dropped and the others corrected (spiked
random matrices: Benaych-Georges and Nadakuditi 2011). The covariance of a class is shrunk to the pooled one, by how far
it differs from that beyond its noise (empirical Bayes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_AXES = 4  # kept even where noise could have produced them
CLASS_FLOOR = 0.05  # least variance of a class, relative to the smallest pooled variance
WITHIN_FLOOR = 0.15  # least variance within a component, relative to the smallest variance of the class


def clipped(vector: Tensor, longest: float) -> Tensor:
    """The vector, scaled down to the length `longest` where it is longer."""
    scale: Tensor = longest / torch.linalg.vector_norm(vector).clamp(min=longest)
    return vector * scale


def packed(vector: Tensor) -> Tensor:
    """The upper triangle of v v^T as a row of norm |v|^2: entries off the diagonal are scaled by sqrt(2)."""
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


def wiener_shrunk(rows: Tensor, bands: Tensor, variances: Tensor) -> Tensor:
    """Wiener shrinkage of rows (k, d) with noise of variance (k,).

    In each band of frequencies the mean energy in excess of the noise estimates the signal, pooled over rows; entries
    are scaled by signal / (signal + noise).
    """
    _, band = torch.unique(bands, return_inverse=True)
    members = torch.nn.functional.one_hot(band).to(rows.dtype)  # (d, bands)
    energy = rows.square() @ members / members.sum(0)  # (k, bands)
    precision = 1 / variances.clamp(min=1e-30)
    signal = ((precision / precision.sum()) @ (energy - variances[:, None])).clamp(min=0)
    return rows * (signal / (signal + variances[:, None] + 1e-30))[:, band]


def eigen(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices.

    They are computed in double precision: in single, LAPACK does not converge on nearly singular matrices, such as
    those without noise.
    """
    values, axes = torch.linalg.eigh(symmetric.double())
    return values.to(symmetric.dtype), axes.to(symmetric.dtype)


def denoised_spectrum(moments: Tensor, *, deviation: float, most: int) -> tuple[Tensor, Tensor]:
    """Eigenvectors (d, r) and eigenvalues (r,) of a noisy symmetric matrix that exceed its noise; at most `most`.

    A symmetric noise matrix with standard deviation s off the diagonal has eigenvalues up to 2 s sqrt(d), and raises
    a true eigenvalue t to t + s^2 d / t; this is inverted.
    """
    values, axes = eigen(moments)
    values, axes = values.flip(0), axes.flip(1)
    edge = 2 * deviation * math.sqrt(len(moments))
    kept = max(LEAST_AXES, int((values > 1.05 * edge).sum()))
    kept = min(kept, most, len(values))
    values = values[:kept].clamp(min=max(edge, float(values[0]) * 1e-6, 1e-12))
    return axes[:, :kept], (values + (values.square() - edge**2).clamp(min=0).sqrt()) / 2


def class_covariance(own: Tensor, pooled: Tensor, *, deviation: float) -> tuple[Tensor, Tensor]:
    """Variances (r,) and axes (r, r) of one class from its own noisy covariance and the pooled variances (r,)."""
    scale = torch.outer(pooled, pooled)  # expected squared deviation of an entry, up to a factor
    difference = own - torch.diag(pooled)
    signal = (difference.square().sum() - deviation**2 * difference.numel()).clamp(min=0) / scale.sum()
    shrinkage = signal * scale / (signal * scale + deviation**2 + 1e-30)
    values, axes = eigen(torch.diag(pooled) + shrinkage * difference)
    return values.clamp(min=CLASS_FLOOR * float(pooled.min())), axes


@dataclass(frozen=True)
class GaussianMixture:
    """The mixture of one class, in coordinates along its own axes; all components have the same covariance."""

    weights: Tensor  # (m,)
    centres: Tensor  # (m, r)
    factor: Tensor  # (r, r), a square root of the covariance within a component

    def draw(self, count: int, draw: torch.Generator) -> Tensor:
        components = torch.multinomial(self.weights, count, replacement=True, generator=draw)
        return self.centres[components] + torch.randn(count, len(self.factor), generator=draw) @ self.factor.T


def initial_centres(count: int, variances: Tensor, draw: torch.Generator) -> Tensor:
    """Initial centres of Lloyd's algorithm: drawn from the Gaussian of the class, scaled towards its mean."""
    return 0.8 * torch.randn(count, len(variances), generator=draw) * variances.sqrt()


def nearest_component(point: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    """The component whose centre is nearest to a point (r,), axes scaled to equal variance except the weakest."""
    weights = 1 / torch.maximum(variances, 0.02 * variances.amax())
    return ((point - centres).square() @ weights).argmin()


def updated_centres(sums: Tensor, sizes: Tensor, *, deviation: float) -> Tensor:
    """Centres (m, r) from noisy sums and sizes, shrunk to zero along axes where they differ by noise alone."""
    means = sums / sizes[:, None]
    noise = deviation**2 * (1 / sizes.square()).mean()
    energy = means.square().mean(0)
    return means * ((energy - noise) / energy.clamp(min=1e-12)).clamp(0, 1)


def mixture_of(centres: Tensor, sizes: Tensor, variances: Tensor) -> GaussianMixture:
    """The mixture with mean zero and the covariance of the class: that of its centres and that within components."""
    weights = sizes / sizes.sum()
    centres = centres - weights @ centres
    within = torch.diag(variances) - (centres.T * weights) @ centres
    values, axes = eigen(within)
    values = values.clamp(min=WITHIN_FLOOR * float(variances.min()))
    return GaussianMixture(weights, centres, axes * values.sqrt())


@dataclass(frozen=True)
class ClassMixtures:
    """A mixture of Gaussians for each class, around its mean; only the coarse part of the image codes varies."""

    means: Tensor  # (k, d)
    coarse: Tensor  # indices of the code that the axes apply to
    axes: Tensor  # (k, coarse, r)
    mixtures: list[GaussianMixture]

    def codes(self, labels: Tensor, draw: torch.Generator) -> Tensor:  # (n,) -> (n, d)
        codes = self.means[labels]
        for label, mixture in enumerate(self.mixtures):
            rows = (labels == label).nonzero()[:, 0]
            if len(rows) == 0:  # a class that nobody asked for: torch draws no samples of nothing
                continue
            codes[rows[:, None], self.coarse] += mixture.draw(len(rows), draw) @ self.axes[label].T
        return codes
