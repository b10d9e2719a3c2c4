"""DP-Kernel (Jiang, Sun, Yu 2023): release an RKHS function of each class plus a Gaussian process, and match it.

The functional mechanism (Hall, Rinaldo, Wasserman 2013): f_D = sum_i k(x_i, .) lies in the RKHS of a kernel k,
one record moves it by at most sqrt(sup k(x, x)) there, and f_D + s g, where g is a sample path of the Gaussian
process with covariance k, is as private as a Gaussian sum with that sensitivity and noise s. Values and gradients of
the released function, wherever and however often they are taken, are post-processing.

Theorem used here. Let k(x, y) = <phi(x), phi(y)> with phi(x) in R^D and |phi(x)| = 1. Then f_D = <sum_i
phi(x_i), .>, its RKHS sensitivity is 1, and <w, phi(.)> with w ~ N(0, I) has covariance E <w, phi(x)> <w, phi(y)>
= k(x, y): it is a path of that process. So the functional mechanism is, exactly, one Gaussian sum of
the phi(x_i), and the path is a function that can be differentiated.

The public code draws the process only at the current points and detached from the graph, so that the generator
follows the exact private gradient whatever the noise; scales the covariance by c instead of c^2; continues without
noise where a factorisation fails; passes private labels to the generator; and its accounting assumes Poisson sampling,
which it does not do. Here one function of all records is released for the whole run, its noise is part of every
gradient, and the labels of generated images are uniform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_positive, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.embedding import count_share_for, mean_embedding, with_count
from sfumato.synthesis.generator_training import (
    GENERATOR_SETTINGS,
    MULTIPLICATIONS,
    GeneratorSampler,
    GeneratorSettings,
    train_generator,
)
from sfumato.values import Images, Spec

PUBLISHED_SIDE = 28  # pixels; the published widths are for images of this size


@dataclass(frozen=True)
class DPKernel(Synthesizer):
    """Hyperparameters, all public.

    The kernel is a mean of Gaussian kernels, for pixels in [-1, 1], times 1[y = y']. A training step
    uses a random subset of the frequencies: the same loss on average, at lower cost.
    """

    free: ClassVar = GENERATOR_SETTINGS | {"glimpse"}

    frequencies: int = 4_000
    glimpse: int = 500  # frequencies that a training step uses
    widths: tuple[float, ...] = (
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
    )  # of the kernels, for 28 x 28 pixels; scaled with the side of the image
    count_share: float = 0.01  # weight of the constant kernel in k, whose function gives the size of a class
    steps: int = 1_500
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 256
    codes: int = 16
    drafts: int = 2  # made of each image; the one most like its class is kept
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(
            self, frequencies=(1, 1_000_000), glimpse=(1, 1_000_000), count_share=(1e-6, 0.9999), seed=(0, 2**31 - 2)
        )
        GeneratorSettings.of(self)
        expect_positive(self, "widths")

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        share = count_share_for(spec, budget.epsilon)
        if spec.pixels <= 256:  # small images need fewer features, and should take seconds
            return cls(frequencies=1_000, glimpse=250, count_share=share, steps=600, batch=200, latent=4, hidden=128)
        return cls(count_share=share)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [GaussianSum(purpose="the mean kernel function of each class, and how large the class is")]

    def seconds(self, spec: Spec) -> float:
        asking = (1 + self.drafts) * spec.count * spec.pixels * self.frequencies / MULTIPLICATIONS
        return 5 + asking + GeneratorSettings.of(self).seconds(spec, distance=spec.pixels * self.glimpse)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        draw = torch.Generator().manual_seed(self.seed)
        witness, reliability = self.release(private, draw)

        def loss(images: Tensor) -> Tensor:
            part = witness.part(self.glimpse, draw)
            return (reliability * part.loss(images.flatten(2))).mean()

        def likeness(images: Tensor, labels: Tensor) -> Tensor:
            return witness(images.flatten(1), labels)

        generator = train_generator(private.spec, GeneratorSettings.of(self), loss, draw=draw, what="dp-kernel")
        return GeneratorSampler(generator, private.spec.classes, likeness, drafts=self.drafts, seed=self.seed + 1)

    def release(self, private: PrivateImages, draw: torch.Generator) -> tuple[Witness, Tensor]:
        """The released function of each class, and its reliability: the part of it that is not noise."""
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        query = private.open(mechanism)
        omega = self._frequencies(spec, draw)

        def contribution(image: Tensor, label: Tensor) -> Tensor:  # the representer k((x, y), .) in R^(1 + D)
            return with_count(features(image.flatten(), omega), self.count_share)

        # f_D + s g: the noise of the sum is the sample path of the process.
        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + D)
        means, reliability = mean_embedding(sums, share=self.count_share, noise=mechanism.noise_multiplier or 0.0)
        return Witness(omega, means), reliability

    def _frequencies(self, spec: Spec, draw: torch.Generator) -> Tensor:
        """Draws from the spectral density of the kernel: each width equally often."""
        widths = torch.tensor(self.widths).repeat(-(-self.frequencies // len(self.widths)))[: self.frequencies, None]
        scale = math.sqrt(spec.pixels) / PUBLISHED_SIDE
        return torch.randn(self.frequencies, spec.pixels, generator=draw) / (widths * scale)


class Witness:
    """f~(., y) = <m_y, phi(.)>: the noisy mean of kernels at the records of each class, as a function of images."""

    def __init__(self, omega: Tensor, means: Tensor) -> None:
        self.omega, self.means = omega, means  # (D/2, d), (k, D)

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:  # (..., d) in [0, 1], (...) -> (...)
        return (features(images, self.omega) * self.means[labels]).sum(-1)

    def loss(self, images: Tensor) -> Tensor:
        """For each class E k(Y, Y') - 2 E f~(Y) of (k, b, d): MMD^2 but for a constant; Y and Y' differ."""
        made = features(images, self.omega)  # (k, b, D)
        b, mean = made.shape[1], made.mean(dim=1)
        pairs = (b * mean.square().sum(-1) - 1) / (b - 1)  # k(Y, Y) = 1 on the diagonal
        return pairs - 2 * (mean * self.means).sum(-1)

    def part(self, frequencies: int, draw: torch.Generator) -> Witness:
        """The same function by a random subset of its frequencies; unbiased."""
        total = len(self.omega)
        if frequencies >= total:
            return self
        rows = torch.randperm(total, generator=draw)[:frequencies]
        means = self.means[:, torch.cat([rows, rows + total])] * math.sqrt(total / frequencies)
        return Witness(self.omega[rows], means)


def features(images: Tensor, omega: Tensor) -> Tensor:
    """phi(x) = sqrt(2/D) [cos(w_j^T (2x - 1)), sin(w_j^T (2x - 1))]; its norm is 1 for every x."""
    angles = (2 * images - 1) @ omega.T  # (..., D/2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(len(omega))
