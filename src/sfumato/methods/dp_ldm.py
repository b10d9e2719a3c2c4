"""DP-LDM (Liu, Lyu, Vinaroz, Park 2023): a latent diffusion model of public images; few layers learn privately.

An autoencoder and a diffusion model on its latents learn from public images (`--public`). Then attention, first layer
and what tells time and class are trained by DP-SGD, and the rest stays: noise in fewer weights is less noise. With
`latent=blocks` latents are coefficients of a fixed transform of blocks of pixels, or with `block=1` pixels: the pixel
variant, which needs no autoencoder.

What is wrong in public code, and what is done here:

- A callback writes private training images to disk as pictures, every few hundred steps. Here a private image is seen
  by the loss alone, and a sampler holds weights.
- Weights are chosen by the loss on private validation images, which is not charged. Here the averaged weights of the
  last round are the result.
- The public training and the private one run as other programs, whose failures are returned as text and not noticed.
  Here a failure ends the run.
- Noise and sampling of records come from a random generator with a public seed there; here from the core.
- The rate rises over more steps than there are, so that the one that was meant is never reached. Here it falls from
  the rate that is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import PrivateImages
from sfumato.synthesis.latent_diffusion import LatentDiffusion
from sfumato.synthesis.public_start import expect_public
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPLDM(LatentDiffusion, Synthesizer):
    """Hyperparameters, all public: those of `LatentDiffusion`."""

    trains: str = "attention-conditioning"

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our networks: days without a GPU."""
        return cls(**{**cls.latents_as_published(spec), "multiplicity": 1})

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        shown = expect_public(public, spec)
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        latents = self.latents(shown, spec)
        network = self.publicly_trained(shown, spec, latents)
        self.train_privately(private, mechanism, network, what="dp-ldm", latents=latents)
        return self.sampled_by(network, spec, latents=latents)
