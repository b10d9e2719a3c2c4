"""A diffusion model trained by DP-SGD, as a family of methods shares it; a method says what it begins with.

Dockhorn, Cao, Vahdat, Kreis (2022): several noised copies of a record are one loss, averaged before the gradient is
bounded, so that they are one row and cost nothing. Images are seen as latents of a fixed orthonormal transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.networks.latent_grid import LatentGrid
from sfumato.networks.latents import Latents
from sfumato.networks.unet_blocks import normed_width
from sfumato.networks.unet_parts import PARTS, train_only
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, descend
from sfumato.synthesis.diffusion_sampler import DiffusionSampler, Painted
from sfumato.synthesis.diffusion_solvers import SOLVERS, Sampling
from sfumato.synthesis.edm import ClassDenoiser, NoiseLevels, denoising_errors
from sfumato.synthesis.noise_pool import NoisePool
from sfumato.values import Spec

MICROBATCH = 288  # noised copies that are trained on at a time; more are no faster
MOST_SECONDS = 1_200.0  # of private training, with the default settings
FEWEST_ROUNDS, MOST_ROUNDS = 30, 600
# Seconds for a place of the grid of one noised copy, privately trained on, and of one image once denoised, on two
# cores, at width 16; they go about as the width.
TRAINED, DENOISED = 6e-6, 1.5e-6

RecordLoss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PrivateDiffusion:
    """The hyperparameters of a privately trained diffusion model, all public, its question, and its training."""

    free: ClassVar = frozenset({"sampler", "sampler_steps", "guidance", "churn", "highest", "lowest"})

    width: int = 16  # channels of the U-Net's first level; rounded up to a multiple of the groups of its norms
    levels: int = 2
    blocks: int = 1  # residual blocks of a level
    block: int = 0  # side in pixels of the blocks that are transformed; 1: pixels; 0: by the size of the images
    rounds: int = 300
    sampling: float = 0.02
    multiplicity: int = 4  # noised copies of a record, which are one row
    l2_bound: float = 0.01
    rate: float = 1e-3
    averaging: float = 0.97  # the share of the averaged weights that stays at each round
    trains: str = "all"  # which part of the network is trained privately
    noise_mean: float = -0.8  # of ln(sigma) of the noise that is trained on
    noise_spread: float = 1.3
    unlabelled: float = 0.1  # share of noised copies that are shown without their label
    sampler: str = "dpm"
    sampler_steps: int = 15
    guidance: float = 0.0  # 0: by the label alone; w: as much further away from the estimate without a label
    churn: float = 0.0  # noise that the sampler heun adds on the way
    highest: float = 40.0  # noise levels between which it samples; the lowest is at most a tenth of it
    lowest: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, sampler=SOLVERS, trains=tuple(PARTS))
        most = 10**6
        expect_within(
            self,
            width=(1, 10_000),
            levels=(1, 6),
            blocks=(1, 100),
            block=(0, 64),
            rounds=(1, most),
            sampling=(1e-9, 1),
            multiplicity=(1, 1_000),
            l2_bound=(1e-9, 1e9),
            rate=(1e-9, 100),
            averaging=(0, 0.99999),
            noise_mean=(-20, 20),
            noise_spread=(1e-3, 20),
            unlabelled=(0, 1),
            sampler_steps=(1, 100_000),
            guidance=(0, 1_000),
            churn=(0, most),
            highest=(1, most),
            lowest=(1e-6, 0.9),
            seed=(0, 2**31 - 2),
        )
        self._sampling()  # which refuses what it cannot do, before anything is asked
        if self.guidance and not self.unlabelled:
            raise UsageError(
                f"Expected unlabelled above 0 with guidance {self.guidance:g}, which needs estimates without a label.",
                fix="set unlabelled to 0.1, say, or guidance to 0",
            )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        return cls(**cls.for_rounds(spec))

    @staticmethod
    def as_published(spec: Spec) -> dict[str, Any]:
        """The settings of DP-SGD that DPImageBench (Gong et al. 2025) uses for the whole family."""
        batch, epochs = 4_096, 150
        return {
            "width": 64,
            "blocks": 2,
            "block": 1,
            "rounds": max(1, round(epochs * spec.count / batch)),
            "sampling": min(1.0, batch / max(spec.count, 1)),
            "multiplicity": 32 if max(spec.height, spec.width) <= 32 else 4,
            "l2_bound": 1e-3,
            "rate": 3e-4,
            "averaging": 0.999,
            "noise_mean": -1.2,
            "noise_spread": 1.2,
        }

    @staticmethod
    def sampled_as_published(spec: Spec) -> dict[str, Any]:
        """The sampler that is used there: stochastic for small grey images, deterministic for others."""
        levels = {"highest": 80.0, "lowest": 0.002}
        if max(spec.height, spec.width) <= 28:
            return {**levels, "sampler": "heun", "sampler_steps": 1_000, "churn": 10.0}
        return {**levels, "sampler": "ddim", "sampler_steps": 250}

    @classmethod
    def for_rounds(cls, spec: Spec, *, seconds: float = MOST_SECONDS) -> dict[str, Any]:
        """As many rounds as take this time, within bounds; small images need a smaller network.

        A round is of about 1,200 records; of half of the records where there are fewer than 2,400, and of 2 % of them
        where there are more than 60,000.
        """
        width = 8 if spec.pixels <= 256 else 16
        sampling = min(0.5, max(0.02, 1_200 / max(spec.count, 1)))
        one = cls(width=width, rounds=1, sampling=sampling).training_seconds(spec)
        rounds = round(min(MOST_ROUNDS, max(FEWEST_ROUNDS, seconds / one)))
        return {"width": width, "rounds": rounds, "sampling": sampling}

    def gradients(self, *, share: float = 1.0) -> GaussianSum:
        """The question of the private training."""
        purpose = "gradients of the diffusion model"
        return GaussianSum(rounds=self.rounds, sampling=self.sampling, share=share, purpose=purpose)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [self.gradients()]

    def training_seconds(self, spec: Spec) -> float:
        copies = self.rounds * self.sampling * spec.count * self.multiplicity
        return 0.05 * self.rounds + copies * TRAINED * self._places(spec)

    def sampling_seconds(self, spec: Spec) -> float:
        """For as many images as there are records."""
        evaluations = self.sampler_steps * (2 if self.sampler == "heun" else 1) * (2 if self.guidance else 1)
        return spec.count * evaluations * DENOISED * self._places(spec)

    def seconds(self, spec: Spec) -> float:
        return 5 + self.training_seconds(spec) + self.sampling_seconds(spec)

    def _places(self, spec: Spec) -> float:
        """Of the grid, as if it had width 16."""
        _, height, breadth = self.grid(spec).shape
        return height * breadth * self.blocks * self.width / 16

    def grid(self, spec: Spec) -> LatentGrid:
        return LatentGrid(spec.shape, side=self.block)

    def untrained(self, spec: Spec, latents: Latents | None = None) -> ClassDenoiser:
        """The network with random weights, for the usual latents or for others."""
        latents = latents or self.grid(spec)
        return ClassDenoiser(
            latents.usual_deviations(),
            len(spec.classes),
            width=normed_width(self.width, latents.shape),
            levels=self.levels,
            blocks=self.blocks,
            seed=self.seed,
        )

    def _sampling(self) -> Sampling:
        return Sampling(self.sampler, self.sampler_steps, self.churn, highest=self.highest, lowest=self.lowest)

    def noise_levels(self) -> NoiseLevels:
        return NoiseLevels(self.noise_mean, self.noise_spread)

    def train_privately(
        self,
        private: PrivateImages,
        mechanism: GaussianSum,
        network: ClassDenoiser,
        *,
        what: str,
        latents: Latents | None = None,
    ) -> None:
        """All rounds of DP-SGD on a part of the network; its weights become averages."""
        train_only(network.unet, self.trains)
        self.descend(private, mechanism, network, what=what, latents=latents)

    def descend(
        self,
        private: PrivateImages,
        mechanism: GaussianSum,
        network: ClassDenoiser,
        *,
        what: str,
        latents: Latents | None = None,
    ) -> None:
        """The same, on whatever is to be trained of the network."""
        query = private.open(mechanism, microbatch=max(4, MICROBATCH // self.multiplicity))
        descent = Descent(self.l2_bound, self.rate, optimizer="adam", averaging=self.averaging)
        deviation = network.deviation

        def losses(number: int) -> RecordLoss:
            return self.loss_of_round(private.spec, number, deviation, latents)

        descend(query, network, losses, descent, what=what)

    def loss_of_round(self, spec: Spec, number: int, deviation: Tensor, latents: Latents | None = None) -> RecordLoss:
        """The loss of a record in a round, a function of the record and of public draws, deviations and latents."""
        grid, no_label = latents or self.grid(spec), len(spec.classes)
        pool = NoisePool.of_round(
            number,
            image=spec.shape,
            latents=grid.shape,
            copies=self.multiplicity,
            levels=self.noise_levels(),
            dropped=self.unlabelled,
            seed=self.seed,
        )

        def loss(model: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
            drawn = pool.chosen_by(image)
            clean = grid.encode(image[None]).expand(drawn.noise.shape)  # (copies, c, a, b)
            labels = torch.where(drawn.unlabelled, no_label, label)
            denoised = model(clean + drawn.sigmas[:, None, None, None] * drawn.noise, drawn.sigmas, labels)
            return denoising_errors(denoised, clean, drawn.sigmas, deviation).mean()

        return loss

    def sampled_by(
        self,
        network: ClassDenoiser,
        spec: Spec,
        painted: Painted | None = None,
        *,
        latents: Latents | None = None,
    ) -> DiffusionSampler:
        """The sampler: images from noise, or painted ones that are noised and finished."""
        return DiffusionSampler(
            network,
            latents or self.grid(spec),
            spec.classes,
            self._sampling(),
            guidance=self.guidance,
            seed=self.seed + 1,
            painted=painted,
        )
