"""DP-MERF (Harder, Adamczewski, Park 2021): match one noisy mean of random Fourier features of each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError
from sfumato.networks.generator import PatchGenerator
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.progress import track
from sfumato.values import Images, Spec

CHUNK = 1_000  # images sampled at a time


@dataclass(frozen=True)
class DPMERF(Synthesizer):
    """Hyperparameters, all public.

    The kernel is a mixture: long length-scales guide an untrained generator, short ones hold the detail
    that a classifier needs. A latent of few dimensions makes fewer broken images.
    """

    frequencies: int = 2_000
    length_scales: tuple[float, ...] = (0.28, 0.16, 0.1)  # times the square root of the number of pixels
    count_share: float = 0.01  # of a record's squared norm, spent on the size of its class
    steps: int = 700
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 6
    hidden: int = 512
    codes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
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
        generator = self._train(spec, omega, embedding.float(), (1 / (1 + energy)).float(), draw)
        return _Paintings(generator, spec.classes, torch.Generator().manual_seed(self.seed + 1))

    def _frequencies(self, spec: Spec, draw: torch.Generator) -> Tensor:
        """Draws of the spectral density of a mixture of Gaussian kernels, equal parts of each length-scale."""
        scales = torch.tensor(self.length_scales).repeat(-(-self.frequencies // len(self.length_scales)))
        lengths = scales[: self.frequencies, None] * math.sqrt(spec.pixels)
        return torch.randn(self.frequencies, spec.pixels, generator=draw) / lengths

    def _train(
        self, spec: Spec, omega: Tensor, embedding: Tensor, trust: Tensor, draw: torch.Generator
    ) -> PatchGenerator:
        k = len(spec.classes)
        generator = PatchGenerator(spec.shape, k, latent=self.latent, hidden=self.hidden, codes=self.codes, draw=draw)
        optimizer = torch.optim.Adam(generator.parameters(), lr=self.learning_rate, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._rate)
        labels = torch.arange(k).repeat_interleave(max(8, self.batch // k))
        for _ in track(range(self.steps), what="dp-merf", total=self.steps):
            images = generator(torch.randn(len(labels), self.latent, generator=draw), labels)
            loss = (trust * squared_mmd(features(images.reshape(k, -1, spec.pixels), omega), embedding)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return generator.eval()

    def _rate(self, step: int) -> float:
        """A short warm-up, then a cosine to zero."""
        return min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / self.steps)) / 2


def features(images: Tensor, omega: Tensor) -> Tensor:
    """phi(x) = sqrt(2/D) [cos(w_j^T x), sin(w_j^T x)], j = 1..D/2; its norm is 1 for every x."""
    angles = images @ omega.T  # (..., D/2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(len(omega))


def squared_mmd(made: Tensor, embedding: Tensor) -> Tensor:
    """For each class |embedding - mean phi(G(z))|^2 of (k, b, d) against (k, d), without bias.

    The plain estimate is too large by (1 - |mean|^2) / b, which rewards a generator for making all
    images of a class alike; a sum over pairs of different images does not.
    """
    b, mean = made.shape[1], made.mean(dim=1)
    pairs = (b * mean.square().sum(-1) - 1) / (b - 1)  # |phi| = 1 on the diagonal
    return pairs - 2 * (mean * embedding).sum(-1) + embedding.square().sum(-1)


def class_sizes(noisy: Tensor, *, share: float, noise: float) -> Tensor:
    """How many records each class has, from the noisy sums of a constant feature."""
    spread = noise / math.sqrt(share)
    return (noisy / math.sqrt(share)).clamp(min=max(1.0, spread))  # below its noise a size says nothing


class _Paintings:
    """Labels to images; holds the generator and its own randomness, and nothing else."""

    def __init__(self, generator: PatchGenerator, classes: tuple[str, ...], draw: torch.Generator) -> None:
        self._generator, self._classes, self._draw = generator, classes, draw

    def __call__(self, labels: Tensor) -> Images:
        made = []
        with torch.no_grad():
            for chunk in torch.split(labels, CHUNK):
                latents = torch.randn(len(chunk), self._generator.latent, generator=self._draw)
                made.append(self._generator(latents, chunk).mul(255).round().to(torch.uint8))
        return Images(torch.cat(made), labels, self._classes)
