"""A discriminator by DP-SGD and a generator that is to deceive it; the generator's side needs no noise.

Goodfellow et al. (2014): adversarial training; Xie et al. (2018): noise only in the discriminator's gradients. The
discriminator's weights come from noisy gradients, and generated images and their labels are public. So the generated
side of the discriminator's loss and all of the generator's training are post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from sfumato.errors import expect_within
from sfumato.networks.generator import ConditionalGenerator
from sfumato.privacy import Descent, Query, descend
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.values import Spec

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
class AdversarialSettings:
    """How an adversarial pair is trained; all of it is public."""

    l2_bound: float  # of the gradient of a record, and of a generated image
    rate: float  # of the discriminator
    generator_rate: float
    head_start: float  # share of the rounds before the first step of the generator
    every: int  # steps of the discriminator for one of the generator
    fakes: int  # generated images in a step of the discriminator
    batch: int  # and in one of the generator
    averaging: float  # of the generator's weights: the share of the average that stays
    diversity: float  # weight of the generator's diversity term
    mismatch: float  # weight of real images with the labels of other classes, which are to be told from the right ones

    def __post_init__(self) -> None:
        expect_within(
            self,
            l2_bound=(1e-9, 1e9),
            rate=(1e-9, 100),
            generator_rate=(1e-9, 100),
            head_start=(0, 1),
            every=(1, 1_000_000),
            fakes=(2, 1_000_000),
            batch=(2, 1_000_000),
            averaging=(0, 0.99999),
            diversity=(0, 1e6),
            mismatch=(0, 1e6),
        )

    @classmethod
    def of(cls, method: Any) -> Self:
        """The settings of a method: a dataclass that has fields of the same names, and one for the start."""
        known = asdict(method)
        known["generator_rate"] = known["generator_rate"] or GENERATOR_RATES[known["start"]]
        return cls(**{field.name: known[field.name] for field in fields(cls)})

    def seconds(self, spec: Spec, *, rounds: int, sampling: float, drafts: int) -> float:
        """Estimated time of the training, and of sampling as many images as there are records."""
        rows = sampling * spec.count + 3 * self.fakes + self.batch / self.every
        return (rounds * (0.02 + 3e-7 * rows * spec.pixels)) + 3e-7 * drafts * spec.count * spec.pixels


def train_adversarially(
    query: Query,
    discriminator: nn.Module,
    generator: ConditionalGenerator,
    losses: Losses,
    settings: AdversarialSettings,
    *,
    draw: torch.Generator,
    what: str,
) -> ConditionalGenerator:
    """Train both by all rounds of the query; the generator with averaged weights comes back."""
    alone = round(settings.head_start * query.rounds)  # steps of a discriminator that has nothing to teach yet
    guided = GuidedGenerator(
        generator,
        len(query.spec.classes),
        rate=settings.generator_rate,
        steps=max(1, (query.rounds - alone) // settings.every),
        averaging=settings.averaging,
        diversity=settings.diversity,
        draw=draw,
    )
    clipped = bool(query.mechanism.noise_multiplier)  # without a budget nothing is
    l2_bound = settings.l2_bound if clipped else math.inf
    companion = Adversary(guided, losses, settings, l2_bound=l2_bound, alone=alone)
    every_label = torch.arange(len(query.spec.classes))[None]

    def loss(model: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
        scores = model(image[None], every_label)[0]  # (k,)
        own = (every_label[0] == label).float()
        others = (losses.fake(scores) * (1 - own)).sum() / max(1, len(own) - 1)
        return (losses.real(scores) * own).sum() + settings.mismatch * others

    descent = Descent(settings.l2_bound, settings.rate, optimizer="adam", momentum=MOMENTUM)
    descend(query, discriminator, lambda _: loss, descent, what=what, companion=companion)
    return guided.average.eval()


class Adversary:
    """The companion of a discriminator in `descend`: generated images for it, and the generator that learns from it."""

    def __init__(
        self,
        guided: GuidedGenerator,
        losses: Losses,
        settings: AdversarialSettings,
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
