"""Densities of sets of images: principal axes, and kernel density estimates along them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_BYTES = 64 * 2**20
SMALLEST = 1e-3  # lower limit of a distance that sets a width, for images that are equal
MOST_FOR_AXES = 1_000  # images that the axes are found from; their Gram matrix stays small for images of any size


def principal_axes(rows: Tensor, *, most: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean of some rows (n, d), and the axes (d, k) along which they vary most; each axis has length 1."""
    some = rows[torch.randperm(len(rows), generator=draw)[:MOST_FOR_AXES]].double()
    centre = some.mean(0)
    some = some - centre
    energies, turned = torch.linalg.eigh(some @ some.T)  # ascending
    kept = min(most, int((energies > 1e-9 * energies[-1].clamp(min=1e-9)).sum()))
    axes = some.T @ turned[:, len(energies) - kept :].flip(1)
    return centre.float(), (axes / axes.norm(dim=0)).float()


def log_density_ratio(at: Tensor, ours: Tensor, theirs: Tensor, *, width: float) -> Tensor:
    """The log ratio of two Gaussian kernel estimates, from ours (n, k) and theirs (m, k), at each row of at (q, k).

    The kernel at a place is as wide as a share of the distance to the nearest of theirs (a balloon estimator,
    Terrell and Scott 1992): with one width for all, in many dimensions the outliers dominate.
    """
    found = []
    for chunk in torch.split(at, max(1, CHUNK_BYTES // (4 * max(len(ours), len(theirs))))):
        distances = torch.cdist(chunk, theirs)
        widths = width * distances.amin(1, keepdim=True).clamp(min=SMALLEST)
        usual = _log_kernels(distances / widths)
        found.append(_log_kernels(torch.cdist(chunk, ours) / widths) - usual)
    return torch.cat(found).double()


def _log_kernels(distances: Tensor) -> Tensor:
    """The log of the mean of Gaussian kernels at distances (q, n), up to a constant."""
    return (distances.square() / -2).logsumexp(1) - math.log(distances.shape[1])


def neighbour_distance(points: Tensor, *, most: int, draw: torch.Generator) -> float:
    """The median distance from a point to its nearest other one, over some of the points (n, k)."""
    chosen = torch.randperm(len(points), generator=draw)[:most]
    nearest = []
    for rows in torch.split(chosen, max(1, CHUNK_BYTES // (4 * len(points)))):
        distances = torch.cdist(points[rows], points)
        distances[torch.arange(len(rows)), rows] = torch.inf
        nearest.append(distances.amin(1))
    return max(SMALLEST, float(torch.cat(nearest).median()))


class RandomFourierFeatures:
    """Random Fourier features of rows (Rahimi and Recht 2007): cosines and sines for a kernel of some width."""

    def __init__(self, dimensions: int, *, count: int, width: float, draw: torch.Generator) -> None:
        self._frequencies = torch.randn(dimensions, count // 2, generator=draw) / width

    def __call__(self, rows: Tensor) -> Tensor:
        angles = rows @ self._frequencies
        scale = self._frequencies.shape[1] ** -0.5
        return torch.cat([scale * angles.cos(), scale * angles.sin()], dim=1)


def logistic(rows: Tensor, labels: Tensor, *, classes: int, decay: float, rounds: int) -> Tensor:
    """The weights (d, k) of a multinomial logistic regression on rows (n, d), by L-BFGS."""
    weights = torch.zeros(rows.shape[1], classes, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=rounds, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = F.cross_entropy(rows @ weights, labels) + decay * weights.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()
