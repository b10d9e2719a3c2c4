"""DP-FETA (Li et al. 2025): a diffusion model that learns rough shapes from noisy central images, then by DP-SGD.

Central images are noisy means of many images of a class. A network that was trained on versions of them knows what
classes roughly look like, and private gradients are left for what means do not show. Both questions are paid from one
budget, and both are in the plan.

What is wrong in public code, and what is done here:

- A central image is the sum over the sampled images of a class, divided by how many there happened to be, and its noise
  is for a divisor that is the same for all data. A class of few images is moved much further by one of them than the
  noise allows for. Here sums are asked, in rows with one bound; the number of images is a further entry of the same
  row, so it is as noisy as they are and costs nothing more.
- The exact numbers of images of the classes are used beside the noisy sums. Here nothing is known but noisy numbers.
- Every process of a training asks for central images of its own and adds its own noise, at the price of one answer, and
  only a public seed makes these the same. Here the core answers once, wherever the records are, and noise has no seed.
- What central images cost is written into a list of earlier costs by hand, and images that are loaded from an earlier
  run cost nothing. Here the ledger charges every question before it is asked, and a training knows of no others.
- The rate of sampling that is accounted for is not the one that is drawn. Here it is the one of the question. All
  records in every round give more for the same cost, so that is the default; `paper` samples.
- Means of samples of a class are almost alike, so that what is trained on differs by noise alone. Here classes are cut
  in two by what was answered before; `paper` does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.central_diffusion import CentralDiffusion
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPFETA(CentralDiffusion, Synthesizer):
    """Hyperparameters, all public: those of `CentralDiffusion`."""

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        return cls(**cls.for_rounds(spec), **cls.for_means(spec, budget))

    @classmethod
    def paper(cls, spec: Spec) -> Self:
        """As published, in the form of DPImageBench (Gong et al. 2025), but with our U-Net: days without a GPU."""
        return cls(
            steps=2_000,
            batch=50,
            plain_rate=3e-4,
            **cls.central_as_published(spec),
            **cls.as_published(spec),
            **cls.sampled_as_published(spec),
        )

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [self.central(spec), self.gradients(share=1 - self.central_share)]

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        central, gradients = private.ledger.calibrate(*self.plan(spec))
        network = self.untrained(spec)
        self.pretrain_on_central_images(private, central, network)
        self.train_privately(private, gradients, network, what="dp-feta")
        return self.sampled_by(network, spec)
