"""Fixed features of colour images: filtered patches, and scattering of the brightness, each half of the squared length.

Patches hold colours and textures, scattering holds where edges are and how they repeat: together they are worth several
points more than either, and cost a private head no more noise than one of them would, because a row has unit length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.patches import PatchFeatures
from sfumato.networks.scattering import ScatteringFeatures

POOL = 2  # scattering maps are averaged over squares of this side


class PhotographFeatures(nn.Module):
    """Both kinds of features, of unit length, equal for an image and its mirror image: (b, c, h, w) -> (b, d, 1, 1)."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.patches = PatchFeatures(channels, height, width)
        self.scattering = ScatteringFeatures(1, height, width)
        with torch.no_grad():
            self.shape = self(torch.zeros(1, channels, height, width)).shape[1:]

    def forward(self, images: Tensor) -> Tensor:
        both = torch.cat([self.patches(images).flatten(1), self._brightness(images)], dim=1)
        return (both / math.sqrt(2))[:, :, None, None]

    def _brightness(self, images: Tensor) -> Tensor:
        grey = images.mean(1, keepdim=True)
        maps = self.scattering(grey) + self.scattering(grey.flip(3))
        return F.normalize(F.avg_pool2d(maps, POOL, ceil_mode=True).flatten(1), dim=1)
