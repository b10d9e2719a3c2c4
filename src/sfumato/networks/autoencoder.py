"""A small autoencoder (Rombach et al. 2022): images as latents on a coarser grid, by a map that was learnt."""

from __future__ import annotations

import hashlib
import itertools
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from sfumato.networks.unet_blocks import GROUPS, Enlarge

DEVIATION = 0.5  # of latents, about that of pixels in [-1, 1]


class _Block(nn.Module):
    """Two convolutions around which the input goes past."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, channels)
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(silu(self.norm_out(self.first(silu(self.norm_in(x))))))
        return x + cast(Tensor, hidden)


class Autoencoder(nn.Module):
    """Images (n, c, h, w) in [0, 1] to latents (n, code, h / 2^halvings, w / 2^halvings), rounded up, and back.

    A latent is Gaussian given its image, as in a variational autoencoder; `encode` gives its mean. Nothing mixes images
    or looks at values to decide what to do, so that `encode` runs under vmap.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, shape: tuple[int, int, int], *, code: int, halvings: int = 2, width: int = 16, seed: int = 0
    ) -> None:
        super().__init__()
        channels, height, breadth = shape
        self._sizes = [(-(-height // 2**level), -(-breadth // 2**level)) for level in range(halvings + 1)]
        self.code = code
        widths = [width * 2**level for level in range(halvings)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = nn.Sequential(
                *(
                    nn.Sequential(nn.Conv2d(fine, coarse, 3, stride=2, padding=1), _Block(coarse))
                    for fine, coarse in itertools.pairwise([channels, *widths])
                )
            )
            self.posterior = nn.Conv2d(widths[-1], 2 * code, 1)
            self.unfold = nn.Sequential(nn.Conv2d(code, widths[-1], 3, padding=1), _Block(widths[-1]))
            self.enlarge = nn.ModuleList(
                Enlarge(coarse, fine) for coarse, fine in itertools.pairwise([*reversed(widths), width])
            )
            self.refine = nn.ModuleList(_Block(fine) for fine in reversed(widths[:-1]))
            self.last = nn.Conv2d(width, channels, 3, padding=1)
        self.register_buffer("mean", torch.zeros(code, 1, 1))
        self.register_buffer("deviation", torch.ones(code, 1, 1))

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.code, *self._sizes[-1])

    @property
    def identity(self) -> str:
        found = hashlib.sha256()
        for value in self.state_dict().values():
            found.update(value.detach().contiguous().numpy().tobytes())
        return f"autoencoder {self.shape} {found.hexdigest()}"

    def usual_deviations(self) -> Tensor:
        return torch.full((self.code,), DEVIATION)

    def gaussians(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each latent, before they are scaled."""
        mean, log_variance = self.posterior(self.encoder(2 * images - 1)).chunk(2, dim=1)
        return mean, log_variance.clamp(-20, 10)

    def drawn(self, latents: Tensor) -> Tensor:
        """Images in [-1, 1], about, from latents that are not scaled."""
        x = self.unfold(latents)
        for level, enlarge in enumerate(self.enlarge):
            x = enlarge(x, torch.Size(self._sizes[-2 - level]))
            if level < len(self.refine):
                x = self.refine[level](x)
        return cast(Tensor, self.last(silu(x)))

    @torch.no_grad()
    def take_statistics(self, images: Tensor) -> None:
        """Let latents have mean zero and the usual deviation on images that anyone may see."""
        found = self.gaussians(images)[0].double()
        self.mean = found.mean((0, 2, 3))[:, None, None].float()
        self.deviation = found.std((0, 2, 3), correction=0)[:, None, None].float().clamp(min=1e-4)

    def encode(self, images: Tensor) -> Tensor:
        return (self.gaussians(images)[0] - self.mean) * DEVIATION / self.deviation

    def decode(self, latents: Tensor) -> Tensor:
        images = self.drawn(latents / DEVIATION * self.deviation + self.mean)
        return ((images + 1) / 2).clamp(0, 1)
