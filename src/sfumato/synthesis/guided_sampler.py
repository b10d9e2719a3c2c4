"""Images of a trained generator, with a warning where it cannot make as many different ones as are wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.networks.generator import ConditionalGenerator
from sfumato.progress import say_once
from sfumato.synthesis.generator_training import GeneratorSampler
from sfumato.values import Images


class GuidedSampler:
    """The sampler: one image for each label."""

    def __init__(self, generator: ConditionalGenerator, classes: tuple[str, ...], *, seed: int) -> None:
        self._most = generator.distinct * len(classes)
        trained = generator.eval().requires_grad_(False)
        self._images = GeneratorSampler(trained, classes, lambda images, labels: images[:, 0], drafts=1, seed=seed)

    @torch.no_grad()
    def __call__(self, labels: Tensor) -> Images:
        if self._most < len(labels):
            say_once(
                f"The generator's latents allow {self._most:,.0f} different images, and {len(labels):,} are wanted: "
                "some will be the same. A longer latent, or latents=gaussian, allows more."
            )
        return self._images(labels)
