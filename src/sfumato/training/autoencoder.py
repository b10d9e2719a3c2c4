"""Training of an autoencoder on images that anyone may see; a killed one goes on, a finished one is not done again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.networks.autoencoder import Autoencoder
from sfumato.progress import track
from sfumato.training.saved_state import SavedState, training_name
from sfumato.values import Checkpoints, Images

MEASURED = 2_000  # images by which latents are scaled
KEPT_EVERY = 500  # steps between checkpoints
DIVERGENCE = 1e-4  # weight of the divergence from a unit Gaussian, for each latent, against squared errors of pixels


@dataclass(frozen=True)
class AutoencoderTraining:
    """The settings of a training on public images."""

    steps: int
    batch: int
    rate: float = 2e-3  # at the beginning; it falls as a cosine
    seed: int = 0


def train_autoencoder(
    network: Autoencoder, images: Images, settings: AutoencoderTraining, *, checkpoints: Checkpoints | None
) -> None:
    """Train the network in place, scale its latents, and freeze it."""
    optimizer = torch.optim.Adam(network.parameters(), settings.rate)
    draw = torch.Generator().manual_seed(settings.seed)
    name = training_name(f"{network.shape} {settings}", images, network)
    saved = SavedState({"network": network}, {"optimizer": optimizer}, draw)
    done = saved.resume(checkpoints, name)
    what = "training the autoencoder on public images"
    for step in track(range(done, settings.steps), what=what, total=settings.steps - done):
        optimizer.param_groups[0]["lr"] = settings.rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        optimizer.zero_grad()
        rows = torch.randint(len(images), (settings.batch,), generator=draw)
        _loss(network, images.pixels[rows].float() / 255, draw).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if checkpoints and (step + 1 == settings.steps or (step + 1) % KEPT_EVERY == 0):
            checkpoints.keep(name, saved.tensors(step + 1))
    some = torch.randperm(len(images), generator=torch.Generator().manual_seed(settings.seed))[:MEASURED]
    network.take_statistics(images.pixels[some].float() / 255)
    network.eval().requires_grad_(False)


def _loss(network: Autoencoder, shown: Tensor, draw: torch.Generator) -> Tensor:
    """Squared errors of pixels, and the divergence of latents from a unit Gaussian (Kingma and Welling 2014)."""
    mean, log_variance = network.gaussians(shown)
    latents = mean + (log_variance / 2).exp() * torch.randn(mean.shape, generator=draw)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
    errors: Tensor = (network.drawn(latents) - (2 * shown - 1)).square().mean() + DIVERGENCE * divergence
    return errors
