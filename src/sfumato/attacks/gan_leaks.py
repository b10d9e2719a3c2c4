"""GAN-Leaks, calibrated (Chen et al. 2020): members are nearer to the release than to other real images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import Attack
from sfumato.statistics.distances import to_nearest
from sfumato.values import Images, Release


@dataclass(frozen=True, slots=True)
class GanLeaks(Attack):
    """The score is the distance to the nearest image of the population minus that to the nearest synthetic image."""

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        usual = to_nearest(candidates.pixels, population.unit().flatten(1))
        return usual - to_nearest(candidates.pixels, release.images.unit().flatten(1))
