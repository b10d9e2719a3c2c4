"""What a generator begins with: random weights, or images painted from noisy class mixtures, which it corrects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.gan_generators import GENERATORS, gan_generator
from sfumato.networks.generator import ConditionalGenerator
from sfumato.networks.refiner import Paint, Refiner
from sfumato.privacy import Budget, GaussianSum, Mechanism, PrivateImages
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions, choose_code
from sfumato.synthesis.mixture_sampler import painter
from sfumato.values import Spec

STARTS = ("painted", "nothing")
AXES = 48  # principal axes of variation of the mixtures, at most
COMPONENT_ROUNDS = 4  # of Lloyd's algorithm
REFINER_WIDTH = 16


@dataclass(frozen=True)
class GeneratorStart:
    """The hyperparameters of a generator before its first step, all public; methods inherit them."""

    start: str = "painted"  # what the generator begins with; "nothing": random weights
    mixture_share: float = 0.4  # of the budget, if it begins with painted images, for the mixtures
    means_share: float = 0.15  # of the mixtures' part, for means
    components: int = 4  # of the mixture of each class
    generator: str = "patches"  # with random weights: or "resnet", "dcgan", with `codes` as their width
    latent: int = 10
    latents: str = "gaussian"  # or "binary": zeros and ones
    hidden: int = 256
    codes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, start=STARTS, generator=GENERATORS, latents=("gaussian", "binary"))
        expect_within(
            self,
            mixture_share=(0.001, 0.999),
            means_share=(0.001, 0.9),
            components=(1, 10_000),
            latent=(1, 1_000),
            hidden=(1, 10**6),
            codes=(1, 10**6),
            seed=(0, 2**31 - 2),
        )

    @staticmethod
    def for_mixtures(spec: Spec, budget: Budget) -> dict[str, Any]:
        """The settings of mixtures that suit a task."""
        asked = ClassMixtureQuestions.for_task(spec, budget)
        return {"means_share": asked.means_share, "components": asked.components}

    @property
    def painted(self) -> bool:
        return self.start == "painted"

    @property
    def share_left(self) -> float:
        """The share of the budget for what comes after."""
        return 1 - self.mixture_share if self.painted else 1.0

    def start_questions(self) -> list[GaussianSum]:
        return self._mixtures.plan(self.mixture_share) if self.painted else []

    def start_seconds(self, spec: Spec) -> float:
        """Estimated time until the generator is there."""
        return 5 + 1.2e-6 * spec.count * spec.pixels if self.painted else 0.0

    def paint(self, private: PrivateImages, calibrated: Sequence[Mechanism]) -> Paint:
        """Ask what was planned for a painted start; the calibrated questions may be among others."""
        asked = [each for each in calibrated if isinstance(each, GaussianSum)]
        return painter(self._mixtures.fit(private, asked, choose_code(private, asked)), details=0)

    def begun(
        self, private: PrivateImages, calibrated: Sequence[Mechanism], draw: torch.Generator
    ) -> ConditionalGenerator:
        """The generator before its first step."""
        return self.generator_of(private.spec, self.paint(private, calibrated) if self.painted else None, draw)

    def generator_of(self, spec: Spec, paint: Paint | None, draw: torch.Generator) -> ConditionalGenerator:
        """A network that corrects what is painted, or one with random weights."""
        if paint:
            return Refiner(paint, spec.shape, len(spec.classes), width=REFINER_WIDTH, draw=draw)
        return gan_generator(
            self.generator,
            spec.shape,
            len(spec.classes),
            latent=self.latent,
            hidden=self.hidden,
            codes=self.codes,
            binary=self.latents == "binary",
            draw=draw,
        )

    @property
    def _mixtures(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(self.means_share, AXES, self.components, COMPONENT_ROUNDS, self.seed)
