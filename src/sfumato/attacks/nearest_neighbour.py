"""Nearest neighbour: a record that was copied has a synthetic image very near to it (Chen et al. 2020, GAN-Leaks)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.contracts import Attack
from sfumato.values import Images, Release

CHUNK = 256  # candidates compared at a time, so that memory stays flat


@dataclass(frozen=True, slots=True)
class NearestNeighbour(Attack):
    """The score is minus the distance to the nearest synthetic image; higher means more like a member."""

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        synthetic = release.images.unit().flatten(1)
        real = candidates.unit().flatten(1)
        return torch.cat([-torch.cdist(part, synthetic).amin(1) for part in torch.split(real, CHUNK)])
