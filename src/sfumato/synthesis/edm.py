"""EDM (Karras, Aittala, Aila, Laine 2022): a denoiser of latents that is told the noise level and the class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.networks.unet import UNet

LEAST_DEVIATION = 0.03  # of a coefficient; half a step of brightness is 0.004
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
    """Noisy latents, their noise levels and labels, to an estimate of the latents; the last label stands for none.

    Coefficients differ in their deviations by far, so each is preconditioned by its own. Then a network whose output is
    zero is the best estimate by coefficients alone, and does not let the noise of fine waves through.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        deviation: Tensor,  # (c,), of the coefficients before anything is known of the images
        classes: int,
        *,
        width: int,
        levels: int = 2,
        blocks: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("mean", torch.zeros_like(deviation)[:, None, None])
        self.register_buffer("deviation", deviation.clone()[:, None, None])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.unet = UNet(
                len(deviation), width=width, levels=levels, blocks=blocks, classes=classes, fastest=FASTEST
            )

    @property
    def no_label(self) -> int:
        return self.classes

    def keep_labels(self, classes: int) -> None:
        """Know only the first so many labels, and the one that stands for none, as before."""
        before = self.unet.of_class
        assert before is not None
        rows = torch.cat([before.weight[:classes], before.weight[-1:]])
        self.unet.of_class = nn.Embedding(len(rows), rows.shape[1], _weight=rows.detach().clone())
        self.classes = classes

    def take_statistics(self, latents: Tensor, *, least: Tensor | float = LEAST_DEVIATION) -> None:
        """Take each coefficient's mean and deviation, where it is above `least`, from latents (n, c, a, b) that anyone
        may see."""
        found = latents.double()
        self.mean = found.mean((0, 2, 3))[:, None, None].float()
        deviation = found.std((0, 2, 3), correction=0)[:, None, None].float()
        self.deviation = torch.maximum(deviation, torch.as_tensor(least))

    def forward(self, noisy: Tensor, sigmas: Tensor, labels: Tensor) -> Tensor:  # (n, c, a, b), (n,), (n,)
        # D(x; sigma) = c_skip x + c_out F(c_in x; c_noise): EDM, equation 7 and table 1, for each coefficient
        sigma, data = sigmas[:, None, None, None], self.deviation
        variance = sigma.square() + data.square()
        centred = noisy - self.mean
        output, _ = self.unet(centred / variance.sqrt(), 0.5 + sigmas.log() / SLOWEST, labels=labels)
        denoised: Tensor = self.mean + data.square() / variance * centred + sigma * data / variance.sqrt() * output
        return denoised


def denoising_errors(denoised: Tensor, latents: Tensor, sigmas: Tensor, deviation: Tensor) -> Tensor:
    """The weighted squared error of each estimate: (n, c, a, b) twice, (n,) and (c, 1, 1) to (n,).

    EDM's weights (equation 2 and table 1), by which every output of the network counts alike; and then by deviations,
    because an error in a coefficient that hardly changes can hardly be seen.
    """
    sigma = sigmas[:, None, None, None]
    weights = (sigma.square() + deviation.square()) / (sigma * deviation).square() * deviation / deviation.mean()
    errors: Tensor = (weights * (denoised - latents).square()).flatten(1).mean(1)
    return errors
