"""A fixed orthonormal transform of square blocks of pixels by cosines: latents on a grid that need no training."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.networks.cosines import cosines


class BlockCosines:
    """Images (n, c, h, w) to the cosine coefficients of their blocks (n, c * kept, h / side, w / side), and back.

    Channels are transformed by cosines too, so that brightness is apart from the differences of colours, which change
    far less. With all coefficients nothing is lost but rounding; with fewer, the fastest waves are left out.
    """

    def __init__(self, side: int = 4, kept: int | None = None) -> None:
        self.side = side
        self.kept = side * side if kept is None else kept
        down, across = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        slowest_first = (down + across).flatten().argsort(stable=True)
        self.numbers = (down + across).flatten()[slowest_first[: self.kept]]  # (kept,) of waves in a block, both ways
        along = cosines(side, side)
        self._waves = torch.kron(along, along)[slowest_first[: self.kept]]  # (kept, side * side)

    def encode(self, images: Tensor) -> Tensor:  # (n, c, h, w) -> (n, c * kept, h / side, w / side)
        n, c, h, w = images.shape
        mixed = torch.einsum("kc,nchw->nkhw", cosines(c, c), images)
        blocks = mixed.reshape(n, c, h // self.side, self.side, w // self.side, self.side)
        pixels = blocks.permute(0, 1, 2, 4, 3, 5).flatten(4)  # (n, c, h / side, w / side, side * side)
        return (pixels @ self._waves.T).permute(0, 1, 4, 2, 3).flatten(1, 2)

    def decode(self, latents: Tensor) -> Tensor:  # (n, c * kept, a, b) -> (n, c, a * side, b * side)
        n, _, a, b = latents.shape
        coefficients = latents.reshape(n, -1, self.kept, a, b).permute(0, 1, 3, 4, 2)
        blocks = (coefficients @ self._waves).reshape(n, -1, a, b, self.side, self.side)
        mixed = blocks.permute(0, 1, 2, 4, 3, 5).reshape(n, -1, a * self.side, b * self.side)
        channels = mixed.shape[1]
        return torch.einsum("kc,nkhw->nchw", cosines(channels, channels), mixed)
