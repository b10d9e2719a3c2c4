"""DP-MERF (Harder, Adamczewski, Park 2021): match one noisy mean of random Fourier features of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError
from sfumato.networks.embedding import class_sizes, squared_mmd
from sfumato.networks.painting import Course, Paintings, paint, paint_pixels
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DPMERF(Synthesizer):
    """Hyperparameters, all public.

    The kernel is a mixture: long length-scales guide an untrained generator, short ones hold the detail
    that a classifier needs. A latent of few dimensions makes fewer broken images.
    """

    free: ClassVar = frozenset({"steps", "batch", "learning_rate", "latent", "hidden", "codes", "canvas"})

    frequencies: int = 2_000
    length_scales: tuple[float, ...] = (0.28, 0.16, 0.1)  # times the square root of the number of pixels
    count_share: float = 0.01  # of a record's squared norm, spent on the size of its class
    steps: int = 700
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    codes: int = 16
    canvas: str = "generator"  # "pixels": the pixels of `batch` images are trained themselves
    seed: int = 0

    def __post_init__(self) -> None:
        if self.canvas not in ("generator", "pixels"):
            raise UsageError(f"Expected canvas as generator or pixels, got {self.canvas!r}.")
        whole = {"frequencies": self.frequencies, "steps": self.steps, "batch": self.batch, "latent": self.latent,
                 "hidden": self.hidden, "codes": self.codes}  # fmt: skip
        for name, value in whole.items():
            if not 1 <= value <= 1_000_000:
                raise UsageError(f"Expected {name} from 1 to 1000000, got {value}.")
        if not self.length_scales or min(self.length_scales) <= 0:
            raise UsageError(f"Expected length_scales above 0, got {self.length_scales}.")
        if not 0 < self.count_share < 1:
            raise UsageError(f"Expected count_share between 0 and 1, got {self.count_share}.")
        if self.learning_rate <= 0 or not 0 <= self.seed < 2**31:
            raise UsageError(
                f"Expected learning_rate > 0 and a seed below 2^31, got {self.learning_rate}, {self.seed}."
            )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # One Gaussian release needs a noise of about 4 / epsilon; class sizes should be known to 5 %,
        # but not at more than a tenth of the budget: the digits do worse then.
        noise = 4 / budget.epsilon * len(spec.classes) / max(spec.count, 1)
        share = min(0.1, max(0.01, (noise / 0.05) ** 2))
        if spec.pixels <= 256:  # such images have few degrees of freedom, and should take seconds
            return cls(frequencies=500, length_scales=(0.3,), count_share=share, steps=600, batch=200,
                       latent=4, hidden=128)  # fmt: skip
        # The work of a step goes as frequencies times pixels.
        return cls(frequencies=max(1_000, min(2_000, 2_000 * 1_024 // spec.pixels)), count_share=share)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [GaussianSum(rounds=1, sampling=1.0)]

    def seconds(self, spec: Spec) -> float:
        features_cost = spec.pixels * self.frequencies  # multiplications for one image
        area = (spec.height // 4 + 1) * (spec.width // 4 + 1)
        generator_cost = self.hidden * (self.hidden + self.codes * area)
        training = self.steps * self.batch * (2 * features_cost + 3 * generator_cost)
        return 5 + 0.005 * self.steps + (spec.count * features_cost + training) / 2.5e10

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        (mechanism,) = private.ledger.calibrate(*self.plan(spec))
        query = private.open(mechanism, purpose="mean embedding of each class")
        draw = torch.Generator().manual_seed(self.seed)
        omega = self._frequencies(spec, draw)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            count = image.new_full((1,), math.sqrt(self.count_share))
            return torch.cat([count, math.sqrt(1 - self.count_share) * features(image.flatten(), omega)])

        # The joint embedding sum_i phi(x_i) (x) onehot(y_i) + noise: one row for each class.
        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + d)
        noise = mechanism.noise_multiplier or 0.0
        sizes = class_sizes(sums[:, 0], share=self.count_share, noise=noise)
        embedding = sums[:, 1:] / (math.sqrt(1 - self.count_share) * sizes[:, None])
        # What noise adds to the squared norm of a class's embedding; a class that is mostly noise should not steer.
        energy = embedding.shape[1] * (noise / sizes).square() / (1 - self.count_share)
        target, trust = embedding.float(), (1 / (1 + energy)).float()

        def distance(images: Tensor) -> Tensor:
            return (trust * squared_mmd(features(images.flatten(2), omega), target)).mean()

        course = Course(self.steps, self.batch, self.learning_rate, self.latent, self.hidden, self.codes)
        train = paint if self.canvas == "generator" else paint_pixels
        painter = train(spec, course, distance, draw=draw, what="dp-merf")
        return Paintings(painter, spec.classes, seed=self.seed + 1)

    def _frequencies(self, spec: Spec, draw: torch.Generator) -> Tensor:
        """Draws of the spectral density of a mixture of Gaussian kernels, equal parts of each length-scale."""
        scales = torch.tensor(self.length_scales).repeat(-(-self.frequencies // len(self.length_scales)))
        lengths = scales[: self.frequencies, None] * math.sqrt(spec.pixels)
        return torch.randn(self.frequencies, spec.pixels, generator=draw) / lengths


def features(images: Tensor, omega: Tensor) -> Tensor:
    """phi(x) = sqrt(2/D) [cos(w_j^T x), sin(w_j^T x)], j = 1..D/2; its norm is 1 for every x."""
    angles = images @ omega.T  # (..., D/2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(len(omega))
