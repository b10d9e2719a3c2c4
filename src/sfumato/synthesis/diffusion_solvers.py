"""Ways from noise to latents by a denoiser: stochastic Heun (EDM), DPM-Solver++(2M), DDIM.

Each takes latents at the first noise level and goes down the levels, of which the last is zero. So all of them can
also begin half-way, with a noised image (SDEdit, Meng et al. 2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import UsageError, expect_one_of, expect_within

SOLVERS = ("dpm", "heun", "ddim")
SPAN = 10  # times the lowest level is the one that it begins with, at least
SHARPNESS = 7.0  # EDM's rho: how much closer the levels are at the low end

Denoise = Callable[[Tensor, Tensor], Tensor]  # noisy latents (n, ...) and their one noise level () to an estimate


@dataclass(frozen=True)
class Sampling:
    """How samples are made; none of it changes what is asked."""

    kind: str = "dpm"
    steps: int = 15  # noise levels; heun evaluates the denoiser about twice at each
    churn: float = 0.0  # of heun: EDM's S_churn, noise that is added on the way
    churn_least: float = 0.025  # S_min and S_max: the levels between which it is added
    churn_most: float = 50.0
    highest: float = 40.0
    lowest: float = 0.02

    def __post_init__(self) -> None:
        expect_one_of(self, kind=SOLVERS)
        most = 1e6
        expect_within(self, steps=(1, 100_000), churn=(0, most), churn_least=(0, most), churn_most=(0, most))
        expect_within(self, highest=(1e-3, most), lowest=(1e-6, 1))
        if self.lowest > self.highest / SPAN:
            raise UsageError(
                f"Expected lowest of at most a tenth of highest, got {self.lowest:g} and {self.highest:g}.",
                fix="make lowest smaller",
            )

    def levels(self, start: float | None = None) -> Tensor:
        """From the start, or the highest, down to the lowest and zero. EDM, equation 5.

        From a start that is near the lowest level, or below it, it goes down to a tenth of the start instead.
        """
        begin = start or self.highest
        first, last = (level ** (1 / SHARPNESS) for level in (begin, min(self.lowest, begin / SPAN)))
        along = torch.linspace(0, 1, self.steps, dtype=torch.float64)
        levels = (first + along * (last - first)) ** SHARPNESS
        return torch.cat([levels, torch.zeros(1, dtype=torch.float64)])

    def run(self, denoise: Denoise, noisy: Tensor, draw: torch.Generator, *, start: float | None = None) -> Tensor:
        """Latents from others at the first noise level."""
        levels = self.levels(start)
        if self.kind == "dpm":
            return dpm_solver(denoise, noisy, levels)
        if self.kind == "ddim":
            return ddim(denoise, noisy, levels)
        return heun(denoise, noisy, levels, self, draw)


def ddim(denoise: Denoise, x: Tensor, levels: Tensor) -> Tensor:
    """DDIM (Song, Meng, Ermon 2021): with noise levels in the place of its steps it is Euler's method."""
    for now, following in _pairs(levels):
        denoised = denoise(x, now.float())
        x = denoised + (following / now).float() * (x - denoised)
    return x


def dpm_solver(denoise: Denoise, x: Tensor, levels: Tensor) -> Tensor:
    """DPM-Solver++(2M) (Lu et al. 2022, algorithm 2), in EDM's terms: alpha = 1, lambda = -ln(sigma)."""
    before: tuple[Tensor, Tensor] | None = None  # the estimate of the step before, and its h
    for now, following in _pairs(levels):
        denoised = denoise(x, now.float())
        if following == 0:
            return denoised
        h = (now / following).log()
        estimate = denoised
        if before is not None:
            past, past_h = before
            ratio = (h / (2 * past_h)).float()
            estimate = (1 + ratio) * denoised - ratio * past
        x = (following / now).float() * x - torch.expm1(-h).float() * estimate
        before = denoised, h
    return x


def heun(denoise: Denoise, x: Tensor, levels: Tensor, settings: Sampling, draw: torch.Generator) -> Tensor:
    """EDM's stochastic sampler (Karras et al. 2022, algorithm 2)."""
    steps = len(levels) - 1
    for now, following in _pairs(levels):
        churned = settings.churn_least <= now <= settings.churn_most
        gamma = min(settings.churn / steps, math.sqrt(2) - 1) if churned else 0.0
        raised = now * (1 + gamma)
        if gamma:
            noise = torch.randn(x.shape, generator=draw).to(x.device)
            x = x + (raised.square() - now.square()).sqrt().float() * noise
        slope = (x - denoise(x, raised.float())) / raised.float()
        step = (following - raised).float()
        reached = x + step * slope
        if following > 0:
            slope_there = (reached - denoise(reached, following.float())) / following.float()
            reached = x + step * (slope + slope_there) / 2
        x = reached
    return x


def _pairs(levels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(itertools.pairwise(levels))
