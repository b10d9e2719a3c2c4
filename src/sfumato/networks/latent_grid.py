"""Images of any size as latents on a small grid, without training: padded, and transformed block by block."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.networks.block_cosines import BlockCosines

DEVIATION = 0.5  # about that of pixels in [-1, 1]
FALL = 1.5  # with this power of its number does a wave's deviation fall in a block, about, in photographs and drawings
COLOUR = 0.3  # of the deviation of brightness, that of differences of colours
PLACES = 10  # of the grid along a side, at most: larger images have larger blocks


class LatentGrid:
    """Images (n, c, h, w) in [0, 1] to latents (n, c * side^2, a, b), and back.

    The transform is orthonormal, so noise of a deviation sigma on the latents is such noise on pixels in [-1, 1].
    Nothing here looks at values or mixes records, so that it runs under vmap.
    """

    def __init__(self, shape: tuple[int, int, int], *, side: int = 0) -> None:
        channels, self._height, self._breadth = shape
        self.side = side or block_side(max(self._height, self._breadth))
        self._blocks = BlockCosines(self.side)
        places = (-(-self._height // self.side), -(-self._breadth // self.side))
        self.shape = (channels * self._blocks.kept, *places)

    @property
    def identity(self) -> str:
        return f"{self.shape} {self.side}"

    def usual_deviations(self) -> Tensor:
        """Of the coefficients of images of which nothing is known: (c * side^2,). Pixels keep one for all."""
        channels = self.shape[0] // self._blocks.kept
        if self.side == 1:
            return torch.full((channels,), DEVIATION)
        waves = (1 + self._blocks.numbers.float()) ** -FALL
        of_channel = torch.cat([torch.ones(1), torch.full((channels - 1,), COLOUR)])
        found = (of_channel[:, None] * waves).flatten()
        return DEVIATION * found / found.square().mean().sqrt()

    def encode(self, images: Tensor) -> Tensor:
        below = self.shape[1] * self.side - self._height
        beside = self.shape[2] * self.side - self._breadth
        signed = 2 * images - 1
        if below:  # the last line is repeated: a border of one value would be an edge
            signed = torch.cat(
                [signed, signed[..., -1:, :].expand(*signed.shape[:-2], below, signed.shape[-1])], dim=-2
            )
        if beside:
            signed = torch.cat([signed, signed[..., -1:].expand(*signed.shape[:-1], beside)], dim=-1)
        return self._blocks.encode(signed)

    def decode(self, latents: Tensor) -> Tensor:
        images = self._blocks.decode(latents)[..., : self._height, : self._breadth]
        return ((images + 1) / 2).clamp(0, 1)


def block_side(longest: int) -> int:
    """The smallest power of two, from 4, with which an image has few enough blocks along its longest side."""
    side = 4
    while -(-longest // side) > PLACES:
        side *= 2
    return side
