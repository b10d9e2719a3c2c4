"""Optimal transport between Gaussians that were fitted to groups of codes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FLOOR = 1e-3  # of a covariance's eigenvalues; codes are standardised


@dataclass(frozen=True)
class GroupGaussians:
    """A mean and a covariance of each group; the covariance of a small group is shrunk towards that of all."""

    means: Tensor  # (k, d), double
    covariances: Tensor  # (k, d, d), double

    @classmethod
    def of(cls, codes: Tensor, groups: Tensor, count: int, *, shrinkage: float) -> GroupGaussians:
        """Of codes (n, d) in `count` groups.

        A covariance is mixed with that of all codes around the means of their groups, with a weight of the least
        `shrinkage`, and more for a group with few codes: an estimate in d dimensions from n codes has an error of the
        order d / n (Ledoit and Wolf 2004).
        """
        codes = codes.double()
        dimensions = codes.shape[1]
        means = torch.stack([codes[groups == group].mean(0) for group in range(count)])
        away = codes - means[groups]
        within = away.T @ away / len(codes)
        covariances = []
        for group in range(count):
            own = away[groups == group]
            weight = max(shrinkage, dimensions / (dimensions + len(own)))
            covariances.append((1 - weight) * (own.T @ own) / len(own) + weight * within)
        return cls(means, torch.stack(covariances))

    def moved(self, codes: Tensor, groups: Tensor, targets: Tensor, *, strength: float) -> Tensor:
        """Codes (n, d) of these groups, taken a share `strength` of the way to the Gaussians of the target groups.

        The map from N(m, S) to N(n, T) is x -> n + A (x - m), A = S^(-1/2) (S^(1/2) T S^(1/2))^(1/2) S^(-1/2) (Dowson
        and Landau 1982): of all maps between the two, the one that moves points least.
        """
        made = codes.double()
        roots = [_roots(covariance) for covariance in self.covariances]
        for source in range(len(self.means)):
            root, inverse = roots[source]
            for target in range(len(self.means)):
                rows = ((groups == source) & (targets == target)).nonzero()[:, 0]
                if source == target or not len(rows):
                    continue
                middle, _ = _roots(root @ self.covariances[target] @ root)
                across = inverse @ middle @ inverse
                arrived = (made[rows] - self.means[source]) @ across + self.means[target]
                made[rows] = (1 - strength) * made[rows] + strength * arrived
        return made.to(codes.dtype)

    def redrawn(self, codes: Tensor, groups: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Codes (n, d) of these groups, of whose variance the share is drawn anew; each group stays its Gaussian."""
        noise = torch.randn(codes.shape, generator=generator, dtype=torch.float64)
        made = codes.double()
        for group, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            rows = groups == group
            root, _ = _roots(covariance)
            away = math.sqrt(1 - share) * (made[rows] - mean) + math.sqrt(share) * noise[rows] @ root
            made[rows] = mean + away
        return made.to(codes.dtype)


def _roots(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The square root of a covariance, and its inverse."""
    values, axes = torch.linalg.eigh(matrix)
    roots = values.clamp(min=FLOOR).sqrt()
    return (axes * roots) @ axes.T, (axes / roots) @ axes.T
