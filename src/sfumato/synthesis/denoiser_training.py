"""How our own diffusion model learns from images, in minutes, so that a killed training goes on where it was."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.progress import track
from sfumato.synthesis.denoiser import STEPS, Denoiser
from sfumato.synthesis.regeneration import noised
from sfumato.training.saved_state import SavedState
from sfumato.training.student import update_average
from sfumato.values import Checkpoints

KEPT_EVERY = 200  # steps between checkpoints
WARM_UP = 100  # steps in which the rate rises
AVERAGING = 0.998  # the share of the averaged weights that stays at each step


@dataclass(frozen=True)
class DenoiserTraining:
    """Settings of the training of our own diffusion model."""

    width: int = 64  # channels of the U-Net's first level
    steps: int = 4000
    batch: int = 32
    rate: float = 1e-3  # the highest; it rises, then falls as a cosine
    seed: int = 0

    def rate_at(self, step: int) -> float:
        rising = min(1.0, (step + 1) / min(WARM_UP, self.steps))
        return self.rate * rising * 0.5 * (1 + math.cos(math.pi * step / self.steps))


def checkpoint_name(pixels: Tensor, settings: DenoiserTraining) -> str:
    """The name that a training is kept under. It says what is learnt from what, so another run can take it over."""
    of = hashlib.sha256(f"{settings} {tuple(pixels.shape)} ".encode() + pixels.contiguous().numpy().tobytes())
    return f"denoiser-{of.hexdigest()[:16]}"


def train_denoiser(pixels: Tensor, settings: DenoiserTraining, checkpoints: Checkpoints) -> Denoiser:
    """A diffusion model of these images, with averaged weights; colour images are mirrored half of the time."""
    _, channels, height, breadth = pixels.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = Denoiser((channels, height, breadth), width=settings.width)
    model.whiten(pixels)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), settings.rate, weight_decay=0.01)
    draw = torch.Generator().manual_seed(settings.seed)
    saved = SavedState({"model": model, "average": average}, {"optimizer": optimizer}, draw)
    name = checkpoint_name(pixels, settings)
    kept = checkpoints.restore(name)
    done = saved.restore(kept) if kept else 0
    for step in track(range(done, settings.steps), what="training the diffusion model", total=settings.steps - done):
        optimizer.param_groups[0]["lr"] = settings.rate_at(step)
        optimizer.zero_grad()
        _loss(model, pixels, settings.batch, draw).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update_average(average, model, min(AVERAGING, (1 + step) / (10 + step)))
        if (step + 1) % KEPT_EVERY == 0 or step + 1 == settings.steps:
            checkpoints.keep(name, saved.tensors(step + 1))
    return average.eval().requires_grad_(False)


def _loss(model: Denoiser, pixels: Tensor, batch: int, draw: torch.Generator) -> Tensor:
    """The squared error of the network's output on random images at random steps.

    Coefficients count by their deviation, because an error in one that hardly changes can hardly be seen.
    """
    rows = torch.randint(len(pixels), (batch,), generator=draw)
    shown = pixels[rows]
    if shown.shape[1] == 3:  # mirrored digits and letters are others
        mirrored = torch.rand(batch, generator=draw)[:, None, None, None] < 0.5
        shown = torch.where(mirrored, shown.flip(3), shown)
    latents = model.encode(shown)
    steps = torch.randint(STEPS, (batch,), generator=draw)
    noise = torch.randn(latents.shape, generator=draw)
    signal = model.signal[steps][:, None, None, None]
    wanted = (1 - signal).sqrt() * latents - signal.sqrt() * noise
    output, _ = model.preconditioned(noised(model, latents, steps, noise), steps)
    weight = model.deviation / model.deviation.mean()
    return (weight * (output - wanted).square()).mean()
