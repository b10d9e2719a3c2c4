"""The generator that adversarial training begins with: one of random weights, or one that corrects painted images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.generator import ConditionalGenerator, PatchGenerator
from sfumato.networks.refiner import Refiner
from sfumato.privacy import GaussianSum, PrivateImages
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions, choose_code
from sfumato.synthesis.mixture_sampler import painter
from sfumato.values import Spec

STARTS = ("painted", "nothing")
AXES = 48  # principal axes of variation of the mixtures, at most
COMPONENT_ROUNDS = 4  # of Lloyd's algorithm


@dataclass(frozen=True)
class FirstGenerator:
    """Which one, and what is asked for it; every number is public."""

    start: str
    mixture_share: float  # of the budget, for the mixtures that images are painted from
    means_share: float  # of that, for means
    components: int  # of the mixture of each class
    seed: int

    def __post_init__(self) -> None:
        expect_one_of(self, start=STARTS)
        expect_within(self, mixture_share=(0.001, 0.999), means_share=(0.001, 0.9), components=(1, 10_000))

    @classmethod
    def of(cls, method: Any) -> Self:
        """That of a method: a dataclass that has fields of the same names."""
        return cls(method.start, method.mixture_share, method.means_share, method.components, method.seed)

    @property
    def share_left(self) -> float:
        """The share of the budget for what comes after."""
        return 1 - self.mixture_share if self.start == "painted" else 1.0

    def seconds(self, spec: Spec) -> float:
        """Estimated time until it is there."""
        return 5 + 1.2e-6 * spec.count * spec.pixels if self.start == "painted" else 0.0

    def plan(self) -> list[GaussianSum]:
        return self._questions().plan(self.mixture_share) if self.start == "painted" else []

    def make(
        self, private: PrivateImages, calibrated: Sequence[GaussianSum], draw: torch.Generator
    ) -> ConditionalGenerator:
        """Ask what was planned; the calibrated questions may be among others."""
        shape, classes = private.spec.shape, len(private.spec.classes)
        if self.start == "nothing":
            return PatchGenerator(shape, classes, latent=10, hidden=256, codes=16, draw=draw)
        sampler = self._questions().fit(private, calibrated, choose_code(private, calibrated))
        return Refiner(painter(sampler, details=0), shape, classes, width=16, draw=draw)

    def _questions(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(self.means_share, AXES, self.components, COMPONENT_ROUNDS, self.seed)
