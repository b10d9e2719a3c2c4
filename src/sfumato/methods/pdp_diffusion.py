"""PDP-Diffusion (Ghalebikesabi et al. 2023): all weights learn from public images, then from private ones by DP-SGD.

Public images (`--public`) cost nothing, and a network that knows what edges and surfaces look like needs few noisy
gradients. The second training is that of DPDM (Dockhorn et al. 2022): several noised copies of a record are one row.

What is wrong in public code, and what is done here:

- Noise and sampling of records come from a random generator with a public seed there; here from the core.
- The network keeps its thousand public labels in private training, where "no label" is another number than guidance
  asks for. Here labels beyond the private classes are dropped between the trainings, and the weights of "no label" go
  along.
- A checkpoint is loaded from wherever a setting points to, and costs nothing even if it was trained on private images.
  Here a training is found by the digest of all that it was made of: public images, their labels, settings, first
  weights.
- Losses of private batches are logged at every step. Here nothing is looked at but noisy gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import PrivateImages
from sfumato.synthesis.public_start import PublicStart, expect_public
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class PDPDiffusion(PublicStart, Synthesizer):
    """Hyperparameters, all public: those of `PretrainedDiffusion`."""

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our U-Net: days without a GPU."""
        return cls(**cls.as_published(spec), **cls.sampled_as_published(spec), **cls.publicly_trained_as_published())

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        shown = expect_public(public, spec)
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        network = self.publicly_trained(shown, spec)
        self.train_privately(private, mechanism, network, what="pdp-diffusion")
        return self.sampled_by(network, spec)
