"""A diffusion model that is trained on varied versions of noisy central images, and then by DP-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sfumato.errors import UsageError, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.central_images import CentralQuestion
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.synthesis.pretrained_diffusion import PretrainedDiffusion
from sfumato.synthesis.varied_images import varied
from sfumato.values import Spec

LEAST_SIGNAL = 3_000  # epsilon times the records of a class, from which classes are cut in two
LEAST_STEPS = 400.0  # of a training without noise: fewer do not teach classes
MOST_VALUES = 10**8  # in all varied images together
ASKED = 2e-7  # seconds for a pixel of a record in a round of central images


@dataclass(frozen=True)
class CentralDiffusion(PretrainedDiffusion):
    """The hyperparameters of the central images and of both trainings, all public."""

    steps: int = 1_500  # of the training on varied central images
    central_share: float = 0.05  # of the budget
    central_rounds: int = 5
    central_sampling: float = 1.0  # below 1, a round is of a random part of the records, as published
    central_halves: bool = True  # classes are cut in two from the second round on
    size_share: float = 0.02  # of a row's squared norm, for the sizes of classes
    varied: int = 8_000  # versions of central images
    variation: float = 0.5  # how far they differ; 0: not at all

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_within(
            self,
            central_share=(1e-6, 0.999),
            central_rounds=(1, 10_000),
            central_sampling=(1e-9, 1),
            size_share=(1e-6, 0.9999),
            varied=(1, 10**7),
            variation=(0, 4),
        )

    @staticmethod
    def central_as_published(spec: Spec) -> dict[str, Any]:
        """Rounds, sampling and share of DP-FETA in the form of DPImageBench (Gong et al. 2025).

        The noise multiplier is 5 there, whatever epsilon; this is the share which that is at epsilon 1. Noise is taken
        off and versions are made as ever here.
        """
        return {
            "central_share": 0.0435,
            "central_rounds": 5,
            "central_sampling": min(1.0, 6_000 / max(spec.count, 1)),
            "central_halves": False,
        }

    @classmethod
    def for_means(cls, spec: Spec, budget: Budget) -> dict[str, Any]:
        """A share by the signal-to-noise ratio of a class, which grows as epsilon times its number of records; and
        steps by the size of the task.

        Halves of small classes would be mostly noise: on digits with 140 records a class at epsilon 10, a linear
        classifier knew 50 % from images of a network that was trained on them, and 72 % on whole classes.
        """
        signal = min(budget.epsilon, 100.0) * spec.count / len(spec.classes)
        share = min(0.4, max(0.02, 0.05 * math.sqrt(6_000 / max(signal, 1e-9))))
        few = small_task(spec)
        images = cls(central_halves=signal >= LEAST_SIGNAL).central_images(spec)
        return {
            "central_share": round(share, 3),
            "central_halves": signal >= LEAST_SIGNAL,
            "steps": round(max(LEAST_STEPS, 1_500 * few)),
            "varied": round(max(500.0, images, min(8_000 * few, MOST_VALUES / spec.pixels))),
        }

    def central(self, spec: Spec) -> GaussianSum:
        """The question of the central images; refused if some of them would be paid for and never be looked at."""
        images = self.central_images(spec)
        if self.varied < images:
            raise UsageError(
                f"Expected at least one version of each of the {images} central images, got varied {self.varied}.",
                fix=f"set varied to {images} or more, or ask fewer central_rounds",
            )
        return self._central_question.mechanism(share=self.central_share)

    def central_images(self, spec: Spec) -> int:
        return self._central_question.images(spec)

    def pretrain_on_central_images(
        self, private: PrivateImages, mechanism: GaussianSum, network: ClassDenoiser
    ) -> None:
        """Ask, and train the network in place on versions of what was answered.

        Central images are blurred, so the network is not told that fine waves are as weak as in these.
        """
        images = self._central_question.ask(private.open(mechanism))
        versions = varied(images, self.varied, strength=self.variation, seed=self.seed)
        self.pretrain(network, versions, private.spec, deviations="no smaller")

    def seconds(self, spec: Spec) -> float:
        asking = self.central_rounds * self.central_sampling * spec.count
        return super().seconds(spec) + ASKED * spec.pixels * (asking + self.varied)

    @property
    def _central_question(self) -> CentralQuestion:
        return CentralQuestion(
            self.central_rounds, self.central_sampling, self.central_halves, self.size_share, self.seed
        )


def small_task(spec: Spec) -> float:
    """From 0 to 1, how far a task is from one that should take seconds."""
    return min(1.0, spec.pixels * spec.count / 4e6)
