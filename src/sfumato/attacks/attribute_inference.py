"""Attribute inference (Fredrikson et al. 2015; Stadler et al. 2022): the label of a half-known record, by the release.

The attacker knows the left half of a candidate, learns from the release alone to predict labels from left
halves; leakage is how much better it predicts those of members than those of other real images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.contracts import Attack
from sfumato.statistics.densities import RandomFourierFeatures, logistic, neighbour_distance
from sfumato.values import Images, Release


@dataclass(frozen=True, slots=True)
class AttributeInference(Attack):
    """The score is the log probability of the true label, by multinomial logistic regression on left halves.

    The regression sees random Fourier features, so that it can memorise left halves of the release.
    """

    # Labels of non-members are predicted well, too (the utility of a release), so even copies score little higher.
    floor_on_copies: ClassVar[float] = 0.7

    features: int = 1_000
    width: float = 0.7  # of a feature's kernel, times the median distance between neighbours in the population
    most: int = 10_000  # released images learnt from
    rounds: int = 50
    decay: float = 1e-6
    seed: int = 0

    def score(self, release: Release, candidates: Images, *, population: Images) -> Tensor:
        draw = torch.Generator().manual_seed(self.seed)
        chosen = torch.randperm(len(release.images), generator=draw)[: self.most]
        # The population sets the scale, because released images may be all alike.
        width = self.width * neighbour_distance(_left(population.pixels), most=1_000, draw=draw)
        known = _left(release.images.pixels[chosen])
        fourier = RandomFourierFeatures(known.shape[1], count=self.features, width=width, draw=draw)
        weights = logistic(
            fourier(known),
            release.images.labels[chosen],
            classes=len(release.images.classes),
            decay=self.decay,
            rounds=self.rounds,
        )
        logits = fourier(_left(candidates.pixels)) @ weights
        return -F.cross_entropy(logits, candidates.labels, reduction="none").double()


def _left(pixels: Tensor) -> Tensor:
    """The left half of each image as a row in [0, 1]."""
    return pixels[..., : max(1, pixels.shape[-1] // 2)].flatten(1).float() / 255
