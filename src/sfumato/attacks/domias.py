"""DOMIAS (van Breugel et al. 2023): where the release is denser than the population, the generator has overfitted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.contracts import Attack
from sfumato.statistics.densities import MOST_FOR_AXES, log_density_ratio, principal_axes
from sfumato.values import Images, Release


@dataclass(frozen=True, slots=True)
class Domias(Attack):
    """The score is the log ratio of two kernel density estimates, of the release and of the population.

    Both are computed along the principal axes of the two sets together: a few dozen numbers per image.
    """

    axes: int = 40
    width: float = 0.33  # of a kernel, times the distance to the nearest image of the population
    seed: int = 0

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        draw = torch.Generator().manual_seed(self.seed)
        synthetic, real = release.images.unit().flatten(1), population.unit().flatten(1)
        centre, axes = principal_axes(torch.cat([_some(synthetic, draw), _some(real, draw)]), most=self.axes, draw=draw)
        at = (candidates.unit().flatten(1) - centre) @ axes
        return log_density_ratio(at, (synthetic - centre) @ axes, (real - centre) @ axes, width=self.width)


def _some(rows: Tensor, draw: torch.Generator) -> Tensor:
    """As many of either set, so that neither alone decides the axes."""
    return rows[torch.randperm(len(rows), generator=draw)[: MOST_FOR_AXES // 2]]
