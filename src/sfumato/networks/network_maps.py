"""What a public network sees where in an image: maps of EfficientNet-Lite0, from which images can be found again.

A classifier needs what an image shows; to find an image one also needs where. So the maps keep a grid of places, finer
in the early rows of the network, as cosine frequencies over the grid: class means are smooth over places, so that most
of the noise of a noisy mean is in high frequencies, where it can be told from the signal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.cosines import cosines, radial_bands
from sfumato.networks.efficientnet_lite0 import lite0
from sfumato.networks.public_network import CHUNK, seen_by_lite0

GRIDS = {2: 8, 3: 4, 5: 4, 7: 2}  # the row of blocks: the side of its grid


class NetworkMaps(nn.Module):
    """Standardised maps of an image: (b, c, h, w) in [0, 1] -> (b, d, 1, 1).

    Each row of blocks has about unit length on average over the examples, which must not be private.
    """

    means: Tensor
    weights: Tensor
    bands: Tensor

    def __init__(self, examples: Tensor) -> None:
        """From example images (n, c, h, w) in [0, 1]."""
        super().__init__()
        self.network = lite0().requires_grad_(False)
        with torch.no_grad():
            parts = zip(*(self._rows(part) for part in torch.split(examples, CHUNK)), strict=True)
            rows = [torch.cat(part) for part in parts]  # (n, d) of each row of blocks
        self.register_buffer("means", torch.cat([row.mean(0) for row in rows]))
        scales = [float(row.std(0).mean()) * math.sqrt(row.shape[1]) for row in rows]
        weights = [torch.full((row.shape[1],), 1 / max(scale, 1e-6)) for row, scale in zip(rows, scales, strict=True)]
        self.register_buffer("weights", torch.cat(weights))
        bands = []
        for number, (side, row) in enumerate(zip(GRIDS.values(), rows, strict=True)):
            of_places = radial_bands(side).flatten() + 1_000 * number
            bands.append(of_places.repeat_interleave(row.shape[1] // side**2))
        self.register_buffer("bands", torch.cat(bands))  # the row and the band of frequencies of each number

    def forward(self, images: Tensor) -> Tensor:
        made = torch.cat(self._rows(images), dim=1)
        return ((made - self.means) * self.weights)[:, :, None, None]

    def _rows(self, images: Tensor) -> list[Tensor]:
        """Pooled maps of some rows of blocks in cosine frequencies, each (b, places * channels)."""
        maps = self.network.maps(seen_by_lite0(images.expand(-1, 3, -1, -1)), rows=max(GRIDS))
        rows = []
        for row, side in GRIDS.items():
            waves = cosines(side, side)
            pooled = F.adaptive_avg_pool2d(maps[row - 1], side)  # (b, c, side, side)
            rows.append(torch.einsum("ih,bchw,jw->bijc", waves, pooled, waves).flatten(1))
        return rows
