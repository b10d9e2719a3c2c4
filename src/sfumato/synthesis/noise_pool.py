"""The public noise of a round of private training: a pool of draws, of which each record gets one by its pixels.

Nothing may be drawn while private records are looked at, and a resumed run must see the same noise. If all records of
a round had the same few draws, the noise of the loss would not average out over them. So a record's own pixels choose
from a pool that is made from the seed and the number of the round: a function of one record alone, in whole numbers,
so that it does not depend on what else is computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato.synthesis.edm import NoiseLevels

NOISED = 512  # noised copies in a pool, about
VALUES = 2**23  # of a pool, about, where latents are large
FEWEST = 8  # draws to choose from


@dataclass(frozen=True)
class Draws:
    """What is drawn for the copies of one record."""

    sigmas: Tensor  # (copies,)
    noise: Tensor  # (copies, *latents)
    unlabelled: Tensor  # (copies,) bool: copies that are shown without their label


@dataclass(frozen=True)
class NoisePool:
    """Draws to choose from: the same as of one record, with a first dimension more."""

    sigmas: Tensor
    noise: Tensor
    unlabelled: Tensor
    weights: Tensor  # int64 (c, h, w), of the pixels in the choice

    @classmethod
    def of_round(
        cls,
        number: int,
        *,
        image: tuple[int, int, int],
        latents: tuple[int, int, int],
        copies: int,
        levels: NoiseLevels,
        dropped: float,  # the share of copies without their label
        seed: int,
    ) -> Self:
        draw = torch.Generator().manual_seed((seed + 1) * 1_000_003 + number)
        values = copies * torch.Size(latents).numel()
        pool = max(FEWEST, min(NOISED // copies, VALUES // values))
        return cls(
            levels.spread_evenly(torch.rand(pool, generator=draw), copies),
            torch.randn(pool, copies, *latents, generator=draw),
            torch.rand(pool, copies, generator=draw) < dropped,
            torch.randint(1, 2**20, image, generator=draw),
        )

    def chosen_by(self, image: Tensor) -> Draws:
        """The draws of an image (c, h, w) in [0, 1]; brightness in 255 steps makes the sum one of whole numbers."""
        brightness = (255 * image).nan_to_num().clamp(-1e6, 1e6).round().long()
        number = ((brightness * self.weights).sum() % len(self.sigmas))[None]
        return Draws(*(drawn[number].squeeze(0) for drawn in (self.sigmas, self.noise, self.unlabelled)))
