"""Density ratio (Sugiyama et al. 2012): a classifier of release against population finds where it is denser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Attack
from sfumato.statistics.densities import (
    MOST_FOR_AXES,
    RandomFourierFeatures,
    logistic,
    neighbour_distance,
    principal_axes,
)
from sfumato.values import Images, Release


@dataclass(frozen=True, slots=True)
class DensityRatio(Attack):
    """The score is the log odds of "from the release" against "from the population", by logistic regression.

    It sees random Fourier features of principal axes, narrow enough to memorise a copied image.
    """

    # What it can memorise is limited by its features, and it sees only a part of a large release.
    floor_on_copies: ClassVar[float] = 0.85

    axes: int = 60
    features: int = 3_000
    width: float = 0.5  # of a feature's kernel, times the median distance between neighbours in the population
    most: int = 10_000  # images learnt from on either side
    rounds: int = 30
    decay: float = 1e-5
    seed: int = 0

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        draw = torch.Generator().manual_seed(self.seed)
        sides = [_some(images, self.most, draw) for images in (release.images, population)]
        both = torch.cat([side[: MOST_FOR_AXES // 2] for side in sides])
        centre, axes = principal_axes(both, most=self.axes, draw=draw)
        synthetic, real = ((side - centre) @ axes for side in sides)
        width = self.width * neighbour_distance(real, most=1_000, draw=draw)
        fourier = RandomFourierFeatures(axes.shape[1], count=self.features, width=width, draw=draw)
        rows = torch.cat([fourier(synthetic), fourier(real)])
        truth = torch.cat([torch.ones(len(synthetic)), torch.zeros(len(real))]).long()
        weights = logistic(rows, truth, classes=2, decay=self.decay, rounds=self.rounds)
        odds = fourier((candidates.unit().flatten(1) - centre) @ axes) @ weights
        return (odds[:, 1] - odds[:, 0]).double()


def _some(images: Images, most: int, draw: torch.Generator) -> Tensor:
    """Rows of some images in random order."""
    chosen = torch.randperm(len(images), generator=draw)[:most]
    return images.pixels[chosen].flatten(1).float() / 255
