"""Nearest neighbour: a record that was copied has a synthetic image very near to it (Chen et al. 2020, GAN-Leaks)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import Attack
from sfumato.statistics.distances import to_nearest
from sfumato.values import Images, Release


@dataclass(frozen=True, slots=True)
class NearestNeighbour(Attack):
    """The score is minus the distance to the nearest synthetic image; higher means more like a member."""

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        return -to_nearest(candidates.pixels, release.images.unit().flatten(1))
