"""DP-Refine (this project, 2026): images painted from noisy class mixtures, finished by a privately trained denoiser.

A diffusion model spends most of its private gradients on the rough shapes of the classes, which a few noisy sums say
better; and images painted from noisy sums have no fine structure, which a denoiser learns at low noise levels from few
gradients. So a part of the budget pays for the class mixtures of the default method. A denoiser is trained on images
painted from them, which costs nothing, then by DP-SGD (Dockhorn et al. 2022) with the rest of the budget. A released
image is a painted one, noised to a middling level and finished by the denoiser (SDEdit, Meng et al. 2022), so its
shape and class are those of the mixtures, and its detail is the denoiser's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions, choose_code
from sfumato.synthesis.diffusion_sampler import Painted
from sfumato.synthesis.mixture_sampler import MixtureSampler, painter
from sfumato.synthesis.pretrained_diffusion import PretrainedDiffusion
from sfumato.synthesis.private_diffusion import PrivateDiffusion
from sfumato.values import Images, Spec

MOST_SECONDS = 600.0  # of private training, with the default settings
CHUNK = 500  # images painted at a time
DETAILS = 3  # kinds of painted images to learn from: without procedural detail, and with once and twice as much


@dataclass(frozen=True)
class DPRefine(PretrainedDiffusion, Synthesizer):
    """Hyperparameters, all public: these and those of `PretrainedDiffusion`."""

    free: ClassVar = PrivateDiffusion.free | {"level", "details"}

    mixture_share: float = 0.3  # of the budget; the rest is for the gradients
    means_share: float = 0.15  # of the mixtures' part of the budget
    axes: int = 48  # principal axes of variation, at most
    components: int = 12  # of the mixture of each class
    component_rounds: int = 4  # of Lloyd's algorithm
    painted: int = 12_000  # images to learn from without noise
    # Of the noise from which painted images are made anew, down to `lowest` or, if that is less, to a tenth of it;
    # 0: they stay as they are.
    level: float = 1.0
    details: int = 0  # how often procedural detail is painted onto an image that is made anew

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_within(
            self,
            mixture_share=(0.001, 0.999),
            means_share=(0.001, 0.9),
            axes=(1, 10_000),
            components=(1, 10_000),
            component_rounds=(1, 1_000),
            painted=(1, 10**7),
            level=(0, 80),
            details=(0, 10),
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        asked = ClassMixtureQuestions.for_task(spec, budget)
        few = min(1.0, spec.pixels * spec.count / 4e6)  # small tasks should take seconds
        return cls(
            means_share=asked.means_share,
            components=asked.components,
            steps=round(max(100.0, 4_000 * few)),
            painted=round(max(500.0, 12_000 * few)),
            sampler_steps=8,
            **cls.for_rounds(spec, seconds=MOST_SECONDS),
        )

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [*self._mixtures.plan(self.mixture_share), self.gradients(share=1 - self.mixture_share)]

    def seconds(self, spec: Spec) -> float:
        painting = 1.2e-6 * (spec.count + self.painted) * spec.pixels
        return super().seconds(spec) + painting + 1e-6 * spec.count * spec.pixels

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        *mixtures, gradients = private.ledger.calibrate(*self.plan(spec))
        sampler = self._mixtures.fit(private, mixtures, choose_code(private, mixtures))
        network = self.untrained(spec)
        self.pretrain(network, self._painted(sampler, spec), spec)
        self.train_privately(private, gradients, network, what="dp-refine")
        return self.sampled_by(network, spec, Painted(painter(sampler, details=self.details), self.level))

    def _painted(self, sampler: MixtureSampler, spec: Spec) -> Images:
        """Images of all classes to learn from, with and without procedural detail."""
        labels = torch.arange(self.painted) % len(spec.classes)
        chunks = torch.split(labels, CHUNK)
        pixels = [sampler(part, details=number % DETAILS) for number, part in enumerate(chunks)]
        return Images(torch.cat(pixels), labels, spec.classes)

    @property
    def _mixtures(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(self.means_share, self.axes, self.components, self.component_rounds, self.seed)
