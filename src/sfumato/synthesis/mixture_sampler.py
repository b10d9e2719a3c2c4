"""Images sampled from the mixtures of the classes, with or without procedural detail; post-processing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.synthesis import moments
from sfumato.synthesis.dead_leaves import detailed
from sfumato.synthesis.image_code import ImageCode


@dataclass(frozen=True)
class MixtureSampler:
    """The image code, the mixture of each class in it, and a random generator."""

    code: ImageCode
    mixtures: moments.ClassMixtures
    draw: torch.Generator

    def __call__(self, labels: Tensor, *, details: int) -> Tensor:
        """One image for each label, as uint8; procedural detail is added `details` times."""
        images = self.code.decode(self.mixtures.codes(labels, self.draw))
        for _ in range(details):
            if self.code.inverted:  # detail is drawn for objects on a black ground
                images = 1 - detailed(1 - images, self.draw)
            else:
                images = detailed(images, self.draw)
        return quantised(images)


def painter(sampler: MixtureSampler, *, details: int) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Images (b, c, h, w) in [0, 1] of labels, from a random generator of the caller's own."""
    return lambda labels, draw: replace(sampler, draw=draw)(labels, details=details).float() / 255


def quantised(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8."""
    return images.mul(255).round().to(torch.uint8)
