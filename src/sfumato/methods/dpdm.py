"""DPDM (Dockhorn, Cao, Vahdat, Kreis 2022): a diffusion model by DP-SGD; several noised copies of a record are one row.

The loss of a record is the mean over several noise levels and draws, so its gradient says more for the same bound.
Preconditioning, loss and sampler are those of EDM (Karras et al. 2022). Here the network is a small U-Net on the
coefficients of a fixed transform of blocks of pixels, so that a processor trains it in minutes; `paper` has the
published numbers, on pixels.

What is wrong in public code, and what is done here:

- Noise and sampling of records come from a random generator with a public seed there, so two releases can be compared
  without their noise; here from the core. What is drawn for the noised copies is public here, too, but not secret: it
  is data that the loss is computed at, and a record's own pixels choose among such draws.
- Losses of private batches are logged at every step, and samples are compared with private images while training. Here
  nothing is looked at but noisy gradients.
- Noise was calibrated by RDP, which left a part of the budget unused; here by PLD.
- A step draws each record with the reciprocal of a whole number of batches in place of the rate that was meant. Here
  the rate is what the plan says, and sums are divided by the expected batch, never by the one that was drawn.
- Guidance asks for a label that stands for none by another number than the one that was trained. Here it is one
  number, that of the network.
- Class sizes are taken from the data by some samplers; here whoever asks for images says of which labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import PrivateImages
from sfumato.synthesis.private_diffusion import PrivateDiffusion
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPDM(PrivateDiffusion, Synthesizer):
    """Hyperparameters, all public: those of `PrivateDiffusion`."""

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our U-Net: days without a GPU."""
        return cls(**cls.as_published(spec), **cls.sampled_as_published(spec))

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        network = self.untrained(spec)
        self.train_privately(private, mechanism, network, what="dpdm")
        return self.sampled_by(network, spec)
