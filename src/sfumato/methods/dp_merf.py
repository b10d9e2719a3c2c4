"""DP-MERF (Harder, Adamczewski, Park 2021): match one noisy mean of random Fourier features of each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_one_of, expect_positive, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.embedding import count_share_for
from sfumato.synthesis.fourier_embedding import PURPOSE, FourierEmbedding, frequencies
from sfumato.synthesis.generator_training import (
    GENERATOR_SETTINGS,
    MULTIPLICATIONS,
    GeneratorSampler,
    GeneratorSettings,
    train_generator,
    train_pixels,
)
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPMERF(Synthesizer):
    """Hyperparameters, all public.

    The kernel is a mean of Gaussian kernels: long length-scales give useful gradients early in training, short ones
    hold the detail that a classifier needs. A latent of few dimensions gives fewer broken images.
    """

    free: ClassVar = GENERATOR_SETTINGS | {"canvas"}

    frequencies: int = 2_000
    length_scales: tuple[float, ...] = (0.28, 0.16, 0.1)  # times the square root of the number of pixels
    count_share: float = 0.01  # of a row's squared norm, spent on the size of the class
    steps: int = 700
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    codes: int = 16
    drafts: int = 2  # made of each image; the one most like its class is kept
    canvas: str = "generator"  # what is trained; "pixels": the pixels of `batch` images instead of a generator
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, canvas=("generator", "pixels"))
        expect_within(self, frequencies=(1, 1_000_000), count_share=(1e-6, 0.9999), seed=(0, 2**31 - 2))
        GeneratorSettings.of(self)
        expect_positive(self, "length_scales")

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        share = count_share_for(spec, budget.epsilon)
        if spec.pixels <= 256:  # small images need fewer features, and should take seconds
            return cls(
                frequencies=500, length_scales=(0.3,), count_share=share, steps=600, batch=200, latent=4, hidden=128
            )
        # A step costs frequencies times pixels.
        return cls(frequencies=max(1_000, min(2_000, 2_000 * 1_024 // spec.pixels)), count_share=share)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [GaussianSum(purpose=PURPOSE)]

    def seconds(self, spec: Spec) -> float:
        features = spec.pixels * self.frequencies  # multiplications for the features of one image
        asking = (1 + self.drafts) * spec.count * features / MULTIPLICATIONS
        return 5 + asking + GeneratorSettings.of(self).seconds(spec, distance=features)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        draw = torch.Generator().manual_seed(self.seed)
        omega = frequencies(spec, self.frequencies, self.length_scales, draw)
        embedding = FourierEmbedding.asked(private.open(mechanism), omega, count_share=self.count_share)
        train = train_generator if self.canvas == "generator" else train_pixels
        generator = train(spec, GeneratorSettings.of(self), embedding.distance, draw=draw, what="dp-merf")
        return GeneratorSampler(generator, spec.classes, embedding.likeness, drafts=self.drafts, seed=self.seed + 1)
