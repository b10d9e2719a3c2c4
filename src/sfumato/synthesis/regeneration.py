"""What a diffusion model must offer to re-generate images, and SDEdit (Meng et al. 2022), which does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from sfumato.errors import UsageError
from sfumato.progress import track

BATCH = 64  # images that are re-generated at once; fixed, so that a seed gives the same images on every machine

Map = Callable[[Tensor], Tensor]


class Regenerator(Protocol):
    """A diffusion model that re-generates images: a way to latents and back, a noise schedule and a denoiser."""

    @property
    def signal(self) -> Tensor:
        """(T,): abar of each step, the share of the latents' variance that is left; it falls with the step."""

    def encode(self, pixels: Tensor) -> Tensor:
        """uint8 (n, c, h, w) -> float32 latents (n, ...)."""

    def decode(self, latents: Tensor) -> Tensor:
        """Latents -> uint8 (n, c, h, w)."""

    def denoise(
        self, noisy: Tensor, steps: Tensor, *, prompted: bool = True, through: Map | None = None
    ) -> tuple[Tensor, Tensor]:
        """The predicted noise, and the middle block's features (n, f, a, b) after `through` was applied to them.

        Without a prompt this is the prediction that guidance goes away from; steps are int64 (n,).
        """

    @property
    def network(self) -> nn.Module:
        """What predicts; low-rank adapters go into it."""

    @property
    def adaptable(self) -> tuple[str, ...]:
        """The names of those linear layers inside `network` that get adapters."""


def noised(model: Regenerator, latents: Tensor, steps: Tensor, noise: Tensor) -> Tensor:
    """Latents as they are at these steps of the schedule: sqrt(abar) x + sqrt(1 - abar) noise."""
    signal = model.signal[steps].reshape(-1, *[1] * (latents.ndim - 1))
    return signal.sqrt() * latents + (1 - signal).sqrt() * noise


def regenerate(
    model: Regenerator,
    pixels: Tensor,
    *,
    strength: float = 0.75,
    steps: int = 50,
    guidance: float = 1.0,
    generator: torch.Generator,
    through: Map | None = None,
) -> Tensor:
    """Images (n, c, h, w) made anew from noised ones, one for one.

    `strength` is how far into the schedule they are noised: 0 keeps them, 1 forgets them. Of `steps` steps of DDIM
    (Song et al. 2021) over the whole schedule the last int(strength * steps) are done; after the noise nothing is
    random. `guidance` w goes from the unprompted prediction u to the prompted c: u + w (c - u); with 1 only c is made.
    """
    if not 0 <= strength <= 1:
        raise UsageError(f"Expected strength from 0 to 1, got {strength:g}.", fix="give a value in this range")
    if steps < 1:
        raise UsageError(f"Expected steps of 1 or more, got {steps}.", fix="give a value in this range")
    if not len(pixels):
        return pixels.clone()
    made = []
    batches = list(torch.split(pixels, BATCH))
    for batch in track(batches, what="re-generating images, batches", total=len(batches)):
        with torch.no_grad():
            latents = model.encode(batch)
            taken = _steps_taken(len(model.signal), strength, steps)
            if taken:
                noise = torch.randn(latents.shape, generator=generator)
                first = torch.full((len(batch),), taken[0])
                latents = noise if strength == 1 else noised(model, latents, first, noise)
                latents = _denoised(model, latents, taken, guidance, through)
            made.append(model.decode(latents))
    return torch.cat(made)


def _steps_taken(length: int, strength: float, steps: int) -> list[int]:
    """The numbers in the schedule of the steps that are done, from the noisiest."""
    spread = [round((i + 1) / steps * length) - 1 for i in range(steps)]
    return spread[: int(strength * steps)][::-1]


def _denoised(model: Regenerator, latents: Tensor, taken: list[int], guidance: float, through: Map | None) -> Tensor:
    """DDIM without randomness: from each step to the next by the predicted noise, at last to none."""
    for step, following in zip(taken, [*taken[1:], None], strict=True):
        noise = _predicted(model, latents, torch.full((len(latents),), step), guidance, through)
        signal = model.signal[step]
        clean = (latents - (1 - signal).sqrt() * noise) / signal.sqrt()
        if following is None:
            return clean
        left = model.signal[following]
        latents = left.sqrt() * clean + (1 - left).sqrt() * noise
    return latents


def _predicted(model: Regenerator, latents: Tensor, steps: Tensor, guidance: float, through: Map | None) -> Tensor:
    """The predicted noise, guided by the prompt."""
    prompted, _ = model.denoise(latents, steps, through=through)
    if guidance == 1:
        return prompted
    unprompted, _ = model.denoise(latents, steps, prompted=False, through=through)
    return unprompted + guidance * (prompted - unprompted)
