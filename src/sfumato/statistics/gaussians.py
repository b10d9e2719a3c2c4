"""Sets of features as one Gaussian each, and as a mixture of many: distances and likelihoods."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 500  # rows of a matrix of distances at a time
ROUNDS = 10  # of expectation and maximisation; a few are enough to converge
PRIOR = 0.1  # how many points the common variance counts for, at each centre


class Frechet(NamedTuple):
    """A squared Frechet distance and the standard error that its images' sampling makes."""

    distance: float
    standard_error: float


def frechet_distance(ours: Tensor, theirs: Tensor) -> float:
    """|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) of two sets of features (Dowson and Landau 1982; Heusel 2017)."""
    few, many = sorted((ours.double(), theirs.double()), key=len)
    (mean, few), (other_mean, many) = _centred(few), _centred(many)
    shared = torch.linalg.eigvalsh(_sandwich(_factor(few), many))
    return _distance(mean - other_mean, few, many, _positive(shared)).item()


def frechet(ours: Tensor, theirs: Tensor) -> Frechet:
    """The same, with the standard error of the infinitesimal jackknife: the variance of each image's influence.

    The influence of x in the first set is 2 (m1 - m2) (x - m1) + (x - m1)' (1 - T) (x - m1), where T takes the
    first Gaussian to the second (Rippl, Munk and Sturm 2016). Bias is no part of it.
    """
    few, many = sorted((ours.double(), theirs.double()), key=len)
    (mean, few), (other_mean, many) = _centred(few), _centred(many)
    shift = mean - other_mean
    factor = _factor(few)  # (r, d), with factor' factor = S1
    values, vectors = torch.linalg.eigh(_sandwich(factor, many))
    values = _positive(values)
    along = torch.where(values > 0, values, torch.inf).pow(-0.25) * vectors  # (r, r)
    # T2 = F' M^(-1/2) F, and T1 is its inverse: |T1^(1/2) x| = |M^(1/4) z| where x = z F.
    moved_many = (many @ (factor.T @ along)).square().sum(1) * (len(many) - 1)
    backwards = values.pow(0.25) * vectors
    moved = backwards if factor is few else _coordinates(few, factor) @ backwards
    moved_few = moved.square().sum(1) * (len(few) - 1)
    variance = torch.zeros((), dtype=torch.float64)
    for rows, moved, towards in ((few, moved_few, shift), (many, moved_many, -shift)):
        scaled = rows * (len(rows) - 1) ** 0.5
        influence = 2 * scaled @ towards + scaled.square().sum(1) - moved
        variance += influence.var() / len(rows)
    return Frechet(_distance(shift, few, many, values).item(), variance.sqrt().item())


def _centred(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and A with A'A the covariance."""
    mean = rows.mean(0)
    return mean, (rows - mean) / (len(rows) - 1) ** 0.5


def _factor(rows: Tensor) -> Tensor:
    """F with F'F = A'A and no more rows than columns; with so few images, A itself."""
    if len(rows) <= rows.shape[1]:
        return rows
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    factor: Tensor = _positive(values).sqrt()[:, None] * vectors.T
    return factor


def _coordinates(rows: Tensor, factor: Tensor) -> Tensor:
    """z with rows = z F, for a factor whose rows are orthogonal."""
    lengths = factor.square().sum(1)
    return rows @ (factor / torch.where(lengths > 0, lengths, torch.inf)[:, None]).T


def _sandwich(factor: Tensor, rows: Tensor) -> Tensor:
    """F S F', whose eigenvalues are those of S1 S2."""
    if len(rows) <= rows.shape[1]:
        half = factor @ rows.T
        return half @ half.T
    return factor @ (rows.T @ rows) @ factor.T


def _positive(values: Tensor) -> Tensor:
    """Eigenvalues with what is only rounding set to zero: the root of 1e-16 would count."""
    return torch.where(values > len(values) * torch.finfo(values.dtype).eps * values.max(), values, 0.0)


def _distance(shift: Tensor, few: Tensor, many: Tensor, shared: Tensor) -> Tensor:
    total = shift.square().sum() + few.square().sum() + many.square().sum() - 2 * shared.sqrt().sum()
    return total.clamp(min=0)


def mixture_variances(centres: Tensor, points: Tensor, *, common: float) -> Tensor:
    """The variance of each of the equal isotropic Gaussians, so that the points are likely; (k,).

    By expectation and maximisation, with a prior of `PRIOR` points at the `common` variance: a centre that is
    a copy of a point would otherwise get the variance zero, and one without points none at all.
    """
    dimensions = centres.shape[1]
    distances = torch.cat([_distances(part, centres) for part in torch.split(points, CHUNK)])  # (n, k)
    variances = torch.full((len(centres),), common)
    for _ in range(ROUNDS):
        mass, spread = torch.zeros(len(centres)), torch.zeros(len(centres))
        for part in torch.split(distances, CHUNK):
            shares = _log_densities(part, variances, dimensions).softmax(1)
            mass += shares.sum(0)
            spread += (shares * part).sum(0)
        variances = (spread / dimensions + PRIOR * common) / (mass + PRIOR)
    return variances


def mixture_log_likelihoods(points: Tensor, centres: Tensor, variances: Tensor) -> Tensor:
    """The log density of each point under the mixture, without the constant of the Gaussian; (n,)."""
    parts = [
        _log_densities(_distances(part, centres), variances, centres.shape[1]).double().logsumexp(1)
        for part in torch.split(points, CHUNK)
    ]
    return torch.cat(parts) - torch.tensor(float(len(centres))).log()


def nearest_variance(centres: Tensor, points: Tensor) -> float:
    """The mean squared distance, a dimension, from a point to its nearest centre."""
    nearest = [_distances(part, centres).min(1).values for part in torch.split(points, CHUNK)]
    return torch.cat(nearest).double().mean().item() / centres.shape[1]


def _log_densities(distances: Tensor, variances: Tensor, dimensions: int) -> Tensor:
    return -distances / (2 * variances) - dimensions / 2 * variances.log()


def _distances(points: Tensor, centres: Tensor) -> Tensor:
    """Squared; (n, k)."""
    return (points.square().sum(1)[:, None] + centres.square().sum(1) - 2 * points @ centres.T).clamp(min=0)
