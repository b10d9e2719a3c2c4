"""Training of a denoiser without noise, on images that anyone may see: public ones, or made from noisy answers.

It never sees private data, so it costs no privacy. On images of `--public` alone, a killed training goes on and a
finished one is not done again: its state is kept in the user's cache. What was learnt from answers is kept nowhere
outside lab and ledger: a killed run replays its answers and trains anew.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sfumato.cache import CachedTrainings
from sfumato.networks.autoencoder import Autoencoder
from sfumato.networks.latents import Latents
from sfumato.progress import track
from sfumato.synthesis.edm import LEAST_DEVIATION, ClassDenoiser, NoiseLevels, denoising_errors
from sfumato.training.autoencoder import AutoencoderTraining, train_autoencoder
from sfumato.training.saved_state import SavedState, training_name
from sfumato.training.student import update_average
from sfumato.values import Checkpoints, Images

MEASURED = 2_000  # images from which the deviations of coefficients are taken
KEPT_EVERY = 500  # steps between checkpoints
WARM_UP = 50  # steps in which the rate rises
LEAST_RATE = 0.05  # of the rate, at the end

# What the network takes the deviations of coefficients for: those of the images; no smaller ones than it has, because
# the images lack detail that those of the private training have; or those that it has, from an earlier training.
Deviations = Literal["measured", "no smaller", "kept"]


@dataclass(frozen=True)
class Pretraining:
    """The settings of a training without noise."""

    levels: NoiseLevels
    steps: int
    batch: int
    rate: float  # the highest; it rises, then falls as a cosine
    averaging: float  # the share of the averaged weights that stays at each step
    unlabelled: float  # share of images that are shown without their label
    mirror: bool  # half of the images are mirrored
    seed: int
    deviations: Deviations = "measured"

    def rate_at(self, step: int) -> float:
        rising = min(1.0, (step + 1) / min(WARM_UP, self.steps))
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.rate * rising * (LEAST_RATE + (1 - LEAST_RATE) * cosine)


def pretrain(
    network: ClassDenoiser,
    images: Images,
    grid: Latents,
    settings: Pretraining,
    *,
    images_are_public: bool = False,
) -> None:
    """Train the network in place; its weights become averages. A label that it does not know counts as none.

    The means and deviations of coefficients are taken from the images, too, unless they are kept. The training is kept
    in the user's cache only if `images_are_public`: all of them, and which they are, came through `--public` and depend
    on no answer.
    """
    checkpoints = _in_cache() if images_are_public else None
    if settings.deviations != "kept":
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(settings.seed))[:MEASURED]
        least = network.deviation if settings.deviations == "no smaller" else LEAST_DEVIATION
        network.take_statistics(grid.encode(images.pixels[some].float() / 255), least=least)
    average = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), settings.rate, betas=(0.9, 0.99))
    draw = torch.Generator().manual_seed(settings.seed)
    saved = SavedState({"network": network, "average": average}, {"optimizer": optimizer}, draw)
    name = training_name(f"{grid.identity} {settings}", images, network)
    done = saved.resume(checkpoints, name)
    known = (images.labels >= 0) & (images.labels < network.classes)
    labels = torch.where(known, images.labels, network.no_label)
    what = "training the diffusion model without noise"
    for step in track(range(done, settings.steps), what=what, total=settings.steps - done):
        optimizer.param_groups[0]["lr"] = settings.rate_at(step)
        optimizer.zero_grad()
        _loss(network, images.pixels, labels, grid, settings, draw).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        update_average(average, network, min(settings.averaging, (1 + step) / (10 + step)))
        last = step + 1 == settings.steps
        if checkpoints and (last or (step + 1) % KEPT_EVERY == 0):
            checkpoints.keep(name, saved.tensors(step + 1))
    network.load_state_dict(average.state_dict())


def pretrain_autoencoder(network: Autoencoder, public: Images, settings: AutoencoderTraining) -> None:
    """Train the network in place, on images that came through `--public`; this is kept in the user's cache."""
    train_autoencoder(network, public, settings, checkpoints=_in_cache())


def _in_cache() -> Checkpoints:
    """Where trainings on public images are kept; hidden, so that nothing else is kept there."""
    return CachedTrainings()


def _loss(
    network: ClassDenoiser,
    pixels: Tensor,
    labels: Tensor,
    grid: Latents,
    settings: Pretraining,
    draw: torch.Generator,
) -> Tensor:
    """The mean loss of random images, at noise levels that are spread evenly over the batch."""
    rows = torch.randint(len(pixels), (settings.batch,), generator=draw)
    shown = pixels[rows].float() / 255
    if settings.mirror:
        mirrored = torch.rand(settings.batch, generator=draw)[:, None, None, None] < 0.5
        shown = torch.where(mirrored, shown.flip(3), shown)
    clean = grid.encode(shown)
    sigmas = settings.levels.spread_evenly(torch.rand(1, generator=draw), settings.batch)[0]
    noise = torch.randn(clean.shape, generator=draw)
    unlabelled = torch.rand(settings.batch, generator=draw) < settings.unlabelled
    told = torch.where(unlabelled, network.no_label, labels[rows])
    denoised = network(clean + sigmas[:, None, None, None] * noise, sigmas, told)
    return denoising_errors(denoised, clean, sigmas, network.deviation).mean()
