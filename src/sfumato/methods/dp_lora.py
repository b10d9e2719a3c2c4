"""DP-LoRA (Tsai et al. 2024): a diffusion model of public images, to which DP-SGD adds low-rank adapters.

Autoencoder and diffusion model learn from public images (`--public`) as in DP-LDM (Liu et al. 2023). Then linear
maps get adapters (Hu et al. 2021), which are trained by DP-SGD together with the embedding of labels; all else stays.
As published these are the maps of attention, which tell blocks of the class, too. Our blocks are told it by a linear
map beside attention, so that gets an adapter as well. `latent=blocks` is the variant without an autoencoder.

What is wrong in public code, and what is done here:

- The gradients of the eight noised copies of a record are each clipped and then added, while noise is drawn for one:
  the sensitivity is eight times what the accounting assumes, so a claimed epsilon of 10 is above 1,000. Here copies
  are averaged before the gradient is bounded, so that they are one row.
- As in DP-LDM: private images are written to disk as pictures, weights are chosen by an uncharged loss on private
  images, failures are not noticed, noise has a public seed. None of it is done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_within
from sfumato.networks.linear_adapters import adapt
from sfumato.privacy import PrivateImages
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.synthesis.latent_diffusion import LatentDiffusion
from sfumato.synthesis.public_start import expect_public
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPLoRA(LatentDiffusion, Synthesizer):
    """Hyperparameters, all public: these and those of `LatentDiffusion`."""

    rank: int = 8
    multiplicity: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_within(self, rank=(1, 1_000))
        if self.trains != "all":
            raise UsageError("Adapters and labels are what this method trains.", fix="leave trains out")

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our networks: days without a GPU."""
        return cls(**{**cls.latents_as_published(spec), "multiplicity": 8})

    def adapted(self, network: ClassDenoiser) -> None:
        """Let adapters and the embedding of labels be trained, and nothing else."""
        network.requires_grad_(False)
        unet, draw = network.unet, torch.Generator().manual_seed(self.seed)
        adapt(unet, (*unet.attention_projections, *unet.conditioning_projections), self.rank, draw)
        assert unet.of_class is not None
        unet.of_class.requires_grad_(True)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        shown = expect_public(public, spec)
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        latents = self.latents(shown, spec)
        network = self.publicly_trained(shown, spec, latents)
        self.adapted(network)
        self.descend(private, mechanism, network, what="dp-lora", latents=latents)
        return self.sampled_by(network, spec, latents=latents)
