"""The sampler of a diffusion model: it holds weights, and where images begin as painted ones, what paints them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.networks.latents import Latents
from sfumato.networks.refiner import Paint
from sfumato.progress import track
from sfumato.synthesis.diffusion_solvers import Sampling
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.values import Images

CHUNK = 250  # images made at a time; fixed, so that a seed gives the same images on every machine


@dataclass(frozen=True)
class Painted:
    """Images to begin with (SDEdit, Meng et al. 2022): what paints them, and the noise level from which they are made
    anew; with 0 they stay as they are."""

    paint: Paint
    level: float


class DiffusionSampler:
    """Labels to images."""

    def __init__(
        self,
        network: ClassDenoiser,
        grid: Latents,
        classes: tuple[str, ...],
        sampling: Sampling,
        *,
        guidance: float,
        seed: int,
        painted: Painted | None = None,
    ) -> None:
        self._network, self._grid, self._classes = network.eval().requires_grad_(False), grid, classes
        self._sampling, self._guidance, self._painted = sampling, guidance, painted
        self._draw = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, labels: Tensor) -> Images:
        chunks = torch.split(labels, CHUNK)
        made = [self._made(chunk) for chunk in track(chunks, what="images", total=len(chunks))]
        return Images(torch.cat(made), labels, self._classes)

    def _made(self, labels: Tensor) -> Tensor:
        noise = torch.randn(len(labels), *self._grid.shape, generator=self._draw)
        if self._painted is None:
            latents, level = noise * self._sampling.highest, self._sampling.highest
        else:
            level = self._painted.level
            latents = self._grid.encode(self._painted.paint(labels, self._draw)) + level * noise
        if level > 0:

            def denoise(noisy: Tensor, sigma: Tensor) -> Tensor:
                return self._estimate(noisy, sigma.expand(len(labels)), labels)

            latents = self._sampling.run(denoise, latents, self._draw, start=level)
        return self._grid.decode(latents).mul(255).round().to(torch.uint8)

    def _estimate(self, noisy: Tensor, sigmas: Tensor, labels: Tensor) -> Tensor:
        """By the label, and away from the estimate without one (Ho and Salimans 2022)."""
        by_label: Tensor = self._network(noisy, sigmas, labels)
        if not self._guidance:
            return by_label
        without: Tensor = self._network(noisy, sigmas, torch.full_like(labels, self._network.no_label))
        return by_label + self._guidance * (by_label - without)
