"""What a diffusion model needs of a map between images and latents, whether it is fixed or was learnt."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Latents(Protocol):
    """Images (n, c, h, w) in [0, 1] to latents (n, *shape), and back; `encode` mixes no images and runs under vmap."""

    @property
    def shape(self) -> tuple[int, int, int]: ...

    @property
    def identity(self) -> str:
        """The same for the same map, and other for another."""

    def usual_deviations(self) -> Tensor:
        """Of each channel, before anything is known of the images: (channels,)."""

    def encode(self, images: Tensor) -> Tensor: ...

    def decode(self, latents: Tensor) -> Tensor: ...
