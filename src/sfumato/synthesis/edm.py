"""EDM (Karras, Aittala, Aila, Laine 2022): a denoiser of latents that is told the noise level and the class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.networks.unet import UNet

SIGMA_DATA = 0.5  # about the deviation of pixels in [-1, 1]
SLOWEST, FASTEST = 8.0, 16.0  # ln(sigma) / SLOWEST is within about one; the fastest wave that tells it, in half turns


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels that are trained on: ln(sigma) is Gaussian."""

    mean: float = -0.8
    spread: float = 1.3

    def at(self, quantiles: Tensor) -> Tensor:
        """Levels by their quantiles in [0, 1]."""
        return torch.exp(self.mean + self.spread * torch.special.ndtri(quantiles.clamp(1e-4, 1 - 1e-4)))

    def spread_evenly(self, starts: Tensor, count: int) -> Tensor:
        """For each start in [0, 1) `count` levels, one from each of as many equal parts: (n,) -> (n, count)."""
        return self.at((torch.arange(count) + starts[:, None]) / count)


class ClassDenoiser(nn.Module):
    """Noisy latents, their noise levels and labels, to an estimate of the latents; the last label stands for none."""

    def __init__(
        self, channels: int, classes: int, *, width: int, levels: int = 2, blocks: int = 1, seed: int = 0
    ) -> None:
        super().__init__()
        self.classes = classes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.unet = UNet(channels, width=width, levels=levels, blocks=blocks, classes=classes, fastest=FASTEST)

    @property
    def no_label(self) -> int:
        return self.classes

    def forward(self, noisy: Tensor, sigmas: Tensor, labels: Tensor) -> Tensor:  # (n, c, a, b), (n,), (n,)
        # D(x; sigma) = c_skip x + c_out F(c_in x; c_noise): EDM, equation 7 and table 1
        sigma = sigmas[:, None, None, None]
        variance = sigma.square() + SIGMA_DATA**2
        output, _ = self.unet(noisy / variance.sqrt(), 0.5 + sigmas.log() / SLOWEST, labels=labels)
        denoised: Tensor = SIGMA_DATA**2 / variance * noisy + sigma * SIGMA_DATA / variance.sqrt() * output
        return denoised


def denoising_errors(denoised: Tensor, latents: Tensor, sigmas: Tensor) -> Tensor:
    """The weighted squared error of each estimate: (n, c, a, b) twice and (n,) to (n,). EDM, equation 2 and table 1."""
    weights: Tensor = (sigmas.square() + SIGMA_DATA**2) / (sigmas * SIGMA_DATA).square()
    squares: Tensor = (denoised - latents).square().flatten(1).mean(1)
    return weights * squares
