"""DP-GAN (Xie, Lin, Wang, Wang, Zhou 2018): a generator that learns from a discriminator trained by DP-SGD.

In the form of DPImageBench (Gong et al. 2025): hinge loss, a discriminator with class projection (Miyato and Koyama
2018), averaged weights of the generator. By default the generator corrects images that are painted from noisy class
mixtures (Shrivastava et al. 2017), because one with random weights needs most of the noisy gradients to find the rough
shapes of the classes. The generator sees private images through the discriminator's weights alone, so its training is
post-processing.

A discriminator of images with right labels alone does not learn what a label means (measured: it scored a wrong label
as high as the right one). So, as in Reed et al. (2016), a real image with the labels of the other classes counts as one
that is not real (`mismatch`); it is the same record, in the same row, with the same bound. Then the discriminator also
selects: of several drafts of an image, the likeliest is kept.

What is wrong in public code, and what is done here:

- The authors' code adds noise to the gradient of a whole batch, leaves that of the last weights without any, and bounds
  weights in place of gradients. Weights that are bounded afterwards do not bound what one record changed. Here the
  gradient of each record is bounded, over all layers together.
- DPImageBench adds the gradients of a real and a generated image and bounds the sum, so generated images use up the
  bound and get noise. They and their labels are public: here they are no part of a record's row. Their gradients are
  bounded as well, so that the two sides weigh the same, and are added without noise.
- Noise comes from a random generator with a public seed there; here from the core.
- Batch norm in a discriminator mixes records, so that bounding one record's gradient bounds nothing. The core refuses
  it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.networks.conditional_discriminators import ProjectionDiscriminator
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.adversarial_training import HINGE, AdversarialSettings, train_adversarially
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions
from sfumato.synthesis.first_generator import FirstGenerator
from sfumato.synthesis.generator_training import GeneratorSampler
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPGAN(Synthesizer):
    """Hyperparameters, all public."""

    free: ClassVar = frozenset({"drafts"})

    start: str = "painted"  # what the generator begins with; "nothing": random weights
    mixture_share: float = 0.4  # of the budget, if it begins with painted images, for the mixtures
    means_share: float = 0.05  # of the mixtures' part, for means
    components: int = 24  # of the mixture of each class
    rounds: int = 300  # steps of the discriminator
    sampling: float = 0.02
    width: int = 16  # of the discriminator's first convolution
    l2_bound: float = 0.1  # of the gradient of a record, and of a generated image
    rate: float = 2e-3  # of the discriminator
    generator_rate: float = 0.0  # 0: a default for the start
    head_start: float = 0.3  # share of the rounds before the first step of the generator
    every: int = 2  # steps of the discriminator for one of the generator
    fakes: int = 120  # generated images in a step of the discriminator
    batch: int = 120  # and in one of the generator
    averaging: float = 0.98  # of the generator's weights
    diversity: float = 0.0  # weight of the term that keeps generated images of a class apart
    mismatch: float = 1.0  # weight of real images with the labels of other classes, which are to be told apart
    drafts: int = 6  # made of each image; the one that the discriminator finds likeliest is kept
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(self, width=(1, 10_000), drafts=(1, 1_000), seed=(0, 2**31 - 2))
        FirstGenerator.of(self)
        AdversarialSettings.of(self)

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        asked = ClassMixtureQuestions.for_task(spec, budget)
        # About 1,000 records in a round keep the sampling noise below the privacy noise; more rounds help where there
        # is less noise.
        signal = min(budget.epsilon, 100.0) * spec.count
        return cls(
            means_share=asked.means_share,
            components=asked.components,
            rounds=round(min(600.0, max(100.0, 400 * (signal / 60_000) ** 0.3))),
            sampling=min(0.5, max(0.02, 1_000 / max(spec.count, 1))),
        )

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        first = FirstGenerator.of(self)
        gradients = GaussianSum(
            rounds=self.rounds,
            sampling=self.sampling,
            share=first.share_left,
            purpose="gradients of the discriminator",
        )
        return [*first.plan(), gradients]

    def seconds(self, spec: Spec) -> float:
        training = AdversarialSettings.of(self).seconds(
            spec, rounds=self.rounds, sampling=self.sampling, drafts=self.drafts
        )
        return FirstGenerator.of(self).seconds(spec) + training

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        calibrated = private.ledger.calibrate(*self.plan(spec))
        draw = torch.Generator().manual_seed(self.seed)
        first = FirstGenerator.of(self).make(private, calibrated, draw)
        discriminator = ProjectionDiscriminator(spec.shape, len(spec.classes), width=self.width, draw=draw)
        generator = train_adversarially(
            private.open(calibrated[-1]),
            discriminator,
            first,
            HINGE,
            AdversarialSettings.of(self),
            draw=draw,
            what="dp-gan",
        )
        return GeneratorSampler(generator, spec.classes, discriminator, drafts=self.drafts, seed=self.seed + 1)
