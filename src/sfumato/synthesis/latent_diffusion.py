"""A diffusion model on latents of an autoencoder that learns from public images, or of a fixed transform of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.autoencoder import Autoencoder
from sfumato.networks.latents import Latents
from sfumato.networks.unet_blocks import normed_width
from sfumato.synthesis.pretraining import pretrain_autoencoder
from sfumato.synthesis.public_start import PublicStart
from sfumato.training.autoencoder import AutoencoderTraining
from sfumato.values import Images, Spec

LATENTS = ("autoencoder", "blocks")
# Seconds for a place of an image, trained on, on two cores, at width 16, estimated from counts of multiplications; they
# go about as the square of the width.
TRAINED = 5e-7


@dataclass(frozen=True)
class LatentDiffusion(PublicStart):
    """The hyperparameters of a latent diffusion model, all public: these and those of `PretrainedDiffusion`.

    `steps` and `batch` are those of each of the two trainings on public images. With an autoencoder, `block` is the
    side in pixels of what a place of its grid stands for.
    """

    latent: str = "autoencoder"
    code: int = 0  # channels of the autoencoder's latents; 0: for a fourth of the values of an image
    code_width: int = 16  # channels of its first level; rounded up to a multiple of the groups of its norms

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, latent=LATENTS)
        expect_within(self, code=(0, 10_000), code_width=(1, 10_000))

    @classmethod
    def latents_as_published(cls, spec: Spec) -> dict[str, Any]:
        """The settings of DPImageBench for DP-LDM and DP-LoRA, beside those of the family."""
        return {
            **cls.as_published(spec),
            **cls.publicly_trained_as_published(),
            "latent": "autoencoder",
            "block": 2,
            "code": 3,
            "code_width": 128,
            "rate": 8.6e-4,  # it rises to 4.1e-3 over 10,000 steps there, of which about 2,100 are made
            "sampler": "ddim",
            "sampler_steps": 200,
        }

    def pretraining_seconds(self, spec: Spec) -> float:
        learnt = (
            TRAINED * spec.height * spec.width * (self.code_width / 16) ** 2 if self.latent == "autoencoder" else 0.0
        )
        return super().pretraining_seconds(spec) + self.steps * self.batch * learnt

    def latents(self, public: Images, spec: Spec) -> Latents:
        """The map between images and latents; an autoencoder is trained first."""
        grid = self.grid(spec)
        if self.latent == "blocks":
            return grid
        halvings = max(1, round(math.log2(grid.side)))
        width = normed_width(self.code_width, grid.shape)
        code = self.code or spec.channels * 4 ** (halvings - 1)
        network = Autoencoder(spec.shape, code=code, halvings=halvings, width=width, seed=self.seed)
        settings = AutoencoderTraining(self.steps, self.batch, self.plain_rate, self.seed)
        pretrain_autoencoder(network, public, settings)
        return network
