"""GAN-Leaks, calibrated (Chen et al. 2020): nearer to the release than a record is to other real images anyway."""

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
