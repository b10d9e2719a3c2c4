"""DP-HP (Vinaroz, Charusaie, Harder, Adamczewski, Park 2022): match one noisy mean of Hermite polynomial features.

Mehler's formula writes the Gaussian kernel of one pixel as a sum over orders c with weights rho^c, so that few
features replace many random ones. The sum kernel is a mean over single pixels, the product kernel a mean over small
sets of pixels. Differences from the paper and its public code:

- They draw one pair of pixels in each epoch and pay for its embedding each time: ten questions for a fifth of the
  budget or more. Here many sets are drawn in advance, and one sum covers all of them.
- They can set the length-scale by the median distance of private pixels, without charge. Here it is public.
- Their embedding of a class scales with its share of the data, while images are generated for all classes equally.
  Here the size of each class is asked in the same sum.
- Their squared distance of means is biased in favour of classes without variety. Here it is unbiased.
- They use pixels in [0, 1], where the polynomials need 100 orders. Here pixels are centred at zero: orders 0 to 4
  hold 99.7 % of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.embedding import count_share_for, mean_embedding, squared_mmd, with_count
from sfumato.synthesis.generator_training import (
    GENERATOR_SETTINGS,
    GeneratorSampler,
    GeneratorSettings,
    train_generator,
)
from sfumato.values import Images, Spec

CHUNK = 64  # images at a time: the features of more do not fit the processor's cache


@dataclass(frozen=True)
class DPHP(Synthesizer):
    """Hyperparameters, all public; lengths are length-scales of Gaussian kernels, for pixels in [0, 1]."""

    free: ClassVar = GENERATOR_SETTINGS

    rho: float = 0.3  # weights of the orders are rho^c
    sum_order: int = 4
    sum_length: float = 0.4
    product_order: int = 2
    product_length: float = 0.8
    product_pixels: int = 2  # pixels in each set
    sets: int = 1_000  # of pixels
    sum_share: float = 0.5  # of the squared norm of the features; the rest is the product kernel's
    count_share: float = 0.01  # of a row's squared norm, spent on the size of the class
    steps: int = 700
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    codes: int = 16
    drafts: int = 2  # made of each image; the one most like its class is kept
    seed: int = 0

    def __post_init__(self) -> None:
        lengths, part = (0.05, 100), (1e-6, 0.9999)
        expect_within(
            self,
            sets=(1, 1_000_000),
            sum_order=(1, 200),
            product_order=(1, 200),
            product_pixels=(1, 12),
            sum_length=lengths,
            product_length=lengths,
            rho=part,
            sum_share=part,
            count_share=part,
            seed=(0, 2**31 - 2),
        )
        GeneratorSettings.of(self)
        if (self.product_order + 1) ** self.product_pixels * self.sets > 1_000_000:
            raise UsageError(
                f"Expected sets * (product_order + 1)^product_pixels up to 1000000, got {self.sets} * "
                f"{self.product_order + 1}^{self.product_pixels}."
            )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        share = count_share_for(spec, budget.epsilon)
        if spec.pixels <= 256:  # small images need fewer features, and should take seconds
            return cls(sets=200, count_share=share, steps=600, batch=200, latent=4, hidden=128)
        # A step costs batch times pixels.
        return cls(count_share=share, batch=max(200, min(500, 500 * 1_024 // spec.pixels)))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [GaussianSum(purpose="the mean Hermite features of each class, and how large the class is")]

    def seconds(self, spec: Spec) -> float:
        return 5 + self._width(spec) * ((1 + self.drafts) * spec.count + 3 * self.steps * self.batch) / 1e8

    def _width(self, spec: Spec) -> int:
        """The number of features of an image."""
        each = int((self.product_order + 1) ** self.product_pixels)
        return spec.pixels * (self.sum_order + 1) + self.sets * each

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        query = private.open(mechanism, microbatch=CHUNK)
        draw = torch.Generator().manual_seed(self.seed)
        sets = self._sets(spec, draw)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            return with_count(self._features(image.flatten(), sets), self.count_share)

        # The joint embedding sum_i phi(x_i) (x) onehot(y_i) + noise: one row for each class.
        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + d)
        target, reliability = mean_embedding(sums, share=self.count_share, noise=mechanism.noise_multiplier or 0.0)

        def distance(images: Tensor) -> Tensor:
            each = max(1, CHUNK // images.shape[1])
            parts = zip(torch.split(images.flatten(2), each), torch.split(target, each), strict=True)
            return (reliability * torch.cat([squared_mmd(self._features(x, sets), mu) for x, mu in parts])).mean()

        def likeness(images: Tensor, labels: Tensor) -> Tensor:
            return (self._features(images.flatten(1), sets) * target[labels]).sum(1)

        generator = train_generator(spec, GeneratorSettings.of(self), distance, draw=draw, what="dp-hp")
        return GeneratorSampler(generator, spec.classes, likeness, drafts=self.drafts, seed=self.seed + 1)

    def _sets(self, spec: Spec, draw: torch.Generator) -> Tensor:
        """Random sets of distinct pixels, (product_pixels, sets); fewer where an image has fewer pixels."""
        drawn = [torch.randperm(spec.pixels, generator=draw)[: self.product_pixels] for _ in range(self.sets)]
        return torch.stack(drawn, dim=1)

    def _features(self, images: Tensor, sets: Tensor) -> Tensor:  # (..., pixels) -> (..., d), |phi| <= 1
        alone = sum_features(images, self.sum_order, self.rho, self.sum_length)
        together = product_features(images, sets, self.product_order, self.rho, self.product_length)
        return torch.cat([math.sqrt(self.sum_share) * alone, math.sqrt(1 - self.sum_share) * together], dim=-1)


def hermite_features(x: Tensor, order: int, rho: float) -> Tensor:  # (..., n) -> (..., order + 1, n)
    """phi_c(x) = sqrt(lambda_c) f_c(x) of Mehler's formula (paper, eq. 7), for c = 0..order.

    k(x, y) = exp(-rho / (1 - rho^2) (x - y)^2) = sum_c lambda_c f_c(x) f_c(y), with lambda_c = (1 - rho) rho^c,
    f_c(x) = H_c(x) exp(-rho / (1 + rho) x^2) / sqrt(N_c) and N_c = 2^c c! sqrt((1 - rho) / (1 + rho)).
    As k(x, x) = 1, a truncated sum has a norm below 1. The recursion H_{c+1} = 2 x H_c - 2 c H_{c-1} with these
    factors is phi_{c+1} = sqrt(2 rho / (c + 1)) x phi_c - rho sqrt(c / (c + 1)) phi_{c-1}; it does not overflow.
    """
    previous = torch.zeros_like(x)
    features = [(1 - rho**2) ** 0.25 * torch.exp(-rho / (1 + rho) * x.square())]
    for c in range(order):
        current = features[-1]
        features.append(math.sqrt(2 * rho / (c + 1)) * x * current - rho * math.sqrt(c / (c + 1)) * previous)
        previous = current
    return torch.stack(features, dim=-2)


def centred_and_scaled(pixels: Tensor, rho: float, length: float) -> Tensor:
    """Pixels in [0, 1], centred at zero and scaled so that Mehler's kernel with this rho has this length-scale."""
    scale = math.sqrt((1 - rho**2) / (2 * rho)) / length  # rho / (1 - rho^2) scale^2 = 1 / (2 length^2)
    return scale * (pixels - 0.5)


def sum_features(images: Tensor, order: int, rho: float, length: float) -> Tensor:
    """Features of the sum kernel k(x, y) = 1/D sum_d k(x_d, y_d) (paper, eq. 15): (..., D) -> (..., (order + 1) D)."""
    each = hermite_features(centred_and_scaled(images, rho, length), order, rho)
    return each.flatten(-2) / math.sqrt(images.shape[-1])


def product_features(images: Tensor, sets: Tensor, order: int, rho: float, length: float) -> Tensor:
    """Features of k(x, y) = 1/S sum_s prod_{d in s} k(x_d, y_d) (eq. 14): (..., D) -> (..., (order + 1)^|s| S)."""
    made = None
    for places in sets:  # (S,): one pixel of every set
        each = hermite_features(centred_and_scaled(images[..., places], rho, length), order, rho)
        made = each if made is None else (made[..., :, None, :] * each[..., None, :, :]).flatten(-3, -2)
    assert made is not None
    return made.flatten(-2) / math.sqrt(sets.shape[1])
