"""A discriminator by DP-SGD and a generator that is to deceive it; the generator's side needs no noise.

Goodfellow et al. (2014): adversarial training; Xie et al. (2018): noise only in the discriminator's gradients. The
discriminator's weights come from noisy gradients, and generated images and their labels are public. So the generated
side of the discriminator's loss and all of the generator's training are post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from sfumato.errors import expect_within
from sfumato.networks.conditional_discriminators import JoinedDiscriminator, ProjectionDiscriminator
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, descend
from sfumato.synthesis.generator_start import GeneratorStart
from sfumato.synthesis.generator_training import GeneratorSampler
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.values import Spec

Discriminator = ProjectionDiscriminator | JoinedDiscriminator
RecordLoss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]
Scores = Callable[[Tensor], Tensor]  # scores of images (b,), high for real ones, to their losses (b,)
GENERATOR_RATES = {"painted": 2e-4, "nothing": 2e-3}  # by what the generator begins with
MOMENTUM = 0.5  # of the discriminator's Adam; with more, two networks that follow each other swing


@dataclass(frozen=True)
class Losses:
    """The losses of an adversarial pair, by the discriminator's scores."""

    real: Scores
    fake: Scores
    generator: Scores


HINGE = Losses(real=lambda s: F.relu(1 - s), fake=lambda s: F.relu(1 + s), generator=lambda s: -s)
CROSS_ENTROPY = Losses(real=lambda s: F.softplus(-s), fake=F.softplus, generator=lambda s: F.softplus(-s))


@dataclass(frozen=True)
class AdversarialGAN(GeneratorStart):
    """The hyperparameters of an adversarial pair, all public, its questions, and its training."""

    free: ClassVar = frozenset({"drafts"})

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
    averaging: float = 0.98  # of the generator's weights: the share of the average that stays
    diversity: float = 0.0  # weight of the term that keeps generated images of a class apart
    mismatch: float = 1.0  # weight of real images with the labels of other classes, which are to be told apart
    drafts: int = 6  # made of each image; the one that the discriminator finds likeliest is kept

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 10**6
        expect_within(
            self,
            width=(1, 10_000),
            l2_bound=(1e-9, 1e9),
            rate=(1e-9, 100),
            generator_rate=(0, 100),
            head_start=(0, 1),
            every=(1, most),
            fakes=(2, most),
            batch=(2, most),
            averaging=(0, 0.99999),
            diversity=(0, 1e6),
            mismatch=(0, 1e6),
            drafts=(1, 1_000),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # About 1,000 records in a round keep the sampling noise below the privacy noise; more rounds help where there
        # is less noise.
        signal = min(budget.epsilon, 100.0) * spec.count
        return cls(
            rounds=round(min(600.0, max(100.0, 400 * (signal / 60_000) ** 0.3))),
            sampling=min(0.5, max(0.02, 1_000 / max(spec.count, 1))),
            **cls.for_mixtures(spec, budget),
        )

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        gradients = GaussianSum(
            rounds=self.rounds,
            sampling=self.sampling,
            share=self.share_left,
            purpose="gradients of the discriminator",
        )
        return [*self.start_questions(), gradients]

    def seconds(self, spec: Spec) -> float:
        rows = self.sampling * spec.count + 3 * self.fakes + self.batch / self.every
        training = self.rounds * (0.02 + 3e-7 * rows * spec.pixels)
        return self.start_seconds(spec) + training + 3e-7 * self.drafts * spec.count * spec.pixels

    def trained(
        self, private: PrivateImages, kind: type[Discriminator], losses: Losses, *, what: str
    ) -> GeneratorSampler:
        """Train both by all rounds; images come from the generator with averaged weights, the likeliest of drafts."""
        spec, classes = private.spec, len(private.spec.classes)
        calibrated = private.ledger.calibrate(*self.plan(spec))
        draw = torch.Generator().manual_seed(self.seed)
        generator = self.begun(private, calibrated, draw)
        discriminator = kind(spec.shape, classes, width=self.width, draw=draw)
        query = private.open(calibrated[-1])
        alone = round(self.head_start * query.rounds)  # steps of a discriminator that has nothing to teach yet
        guided = GuidedGenerator(
            generator,
            classes,
            rate=self.generator_rate or GENERATOR_RATES[self.start],
            steps=max(1, (query.rounds - alone) // self.every),
            averaging=self.averaging,
            diversity=self.diversity,
            draw=draw,
        )
        clipped = bool(query.mechanism.noise_multiplier)  # without a budget nothing is
        companion = Adversary(guided, losses, self, l2_bound=self.l2_bound if clipped else math.inf, alone=alone)
        descent = Descent(self.l2_bound, self.rate, optimizer="adam", momentum=MOMENTUM)
        loss = record_loss(losses, classes, self.mismatch)
        descend(query, discriminator, lambda _: loss, descent, what=what, companion=companion)
        return GeneratorSampler(
            guided.average.eval(), spec.classes, discriminator, drafts=self.drafts, seed=self.seed + 1
        )


def record_loss(losses: Losses, classes: int, mismatch: float) -> RecordLoss:
    """The discriminator's loss at a record: it is real with its own label, and not with the labels of other classes."""
    every_label = torch.arange(classes)[None]

    def loss(model: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = model(image[None], every_label)[0]  # (k,)
        own = (every_label[0] == label).float()
        others = (losses.fake(scores) * (1 - own)).sum() / max(1, classes - 1)
        return (losses.real(scores) * own).sum() + mismatch * others

    return loss


class Adversary:
    """The companion of a discriminator in `descend`: generated images for it, and the generator that learns from it."""

    def __init__(
        self,
        guided: GuidedGenerator,
        losses: Losses,
        settings: AdversarialGAN,
        *,
        l2_bound: float,
        alone: int = 0,  # steps of the discriminator before the generator's first
    ) -> None:
        self._guided, self._losses, self._settings = guided, losses, settings
        self._l2_bound, self._alone = l2_bound, alone

    def loss(self, model: nn.Module) -> Tensor:
        """The mean loss of generated images, each weighted so that its gradient is not longer than a record's may be.

        Otherwise the generated side would outweigh the real one, whose gradients are clipped.
        """
        images, labels = self._guided.fakes(self._settings.fakes)
        weights = torch.ones(len(images))
        if math.isfinite(self._l2_bound):
            weights = (self._l2_bound / self._gradient_norms(model, images, labels)).clamp(max=1)
        return (weights * self._losses.fake(model(images, labels))).mean()

    def _gradient_norms(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        trained = {name: weight.detach() for name, weight in model.named_parameters()}

        def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            return self._losses.fake(functional_call(model, weights, (image[None], label[None])))[0]

        gradients = vmap(grad(loss), (None, 0, 0))(trained, images, labels)
        squares = [gradient.flatten(1).square().sum(1) for gradient in gradients.values()]
        return torch.stack(squares).sum(0).sqrt().clamp(min=1e-12)

    def step(self, model: nn.Module, step: int) -> None:
        """A step of the generator after every few of the discriminator."""
        if step < self._alone or (step + 1) % self._settings.every:
            return
        model.requires_grad_(False)  # the generator's step needs no gradient of the discriminator's weights
        images, labels = self._guided.images(self._settings.batch)
        self._guided.descend(images, self._losses.generator(model(images, labels)).mean())
        model.requires_grad_(True)

    def state(self) -> dict[str, Tensor]:
        return self._guided.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._guided.restore(state)
