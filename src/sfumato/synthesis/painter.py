"""Images of classes from their noisy moments, plain or with invented detail: post-processing, which is free."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.synthesis import moments
from sfumato.synthesis.dead_leaves import detailed
from sfumato.synthesis.image_code import ImageCode


@dataclass(frozen=True)
class Painter:
    """A basis, a mixture for each class in it, and where chance comes from."""

    code: ImageCode
    paints: moments.Mixture
    draw: torch.Generator

    def __call__(self, labels: Tensor, *, details: int) -> Tensor:
        """One image for each label, plain or with detail that no moment holds, once or twice."""
        images = self.code.decode(self.paints.codes(labels, self.draw))
        for _ in range(details):  # on a white ground, in the negative
            images = 1 - detailed(1 - images, self.draw) if self.code.inverted else detailed(images, self.draw)
        return quantised(images)


def quantised(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8."""
    return images.mul(255).round().to(torch.uint8)
