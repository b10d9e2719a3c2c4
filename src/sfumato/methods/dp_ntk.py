"""DP-NTK (Yang, Adamczewski, Sutherland, Li, Park 2023): match one noisy mean of an untrained network's gradients.

A record's feature is the gradient of the network's output with respect to all parameters, at unit length; its inner
products are the empirical neural tangent kernel. For one hidden layer the gradient has a closed form, so that no
backward pass is needed, and the mean feature of a class is one matrix product.

Network. f(x) = sum_j a_j cos(w_j^T x + v_j^T P x + b_j), phases in pairs b and b + pi/2, so that each direction w_j
has a cosine and a sine; outer weights a_j = +-a; v = 0. P averages the image over a grid of squares, with unit rows.
The directions w are fixed; the parameters are v, b and a. With u = [cos(w_j^T x), sin(w_j^T x)]_j the gradient is,
up to signs and an order that do not change inner products,

    df/dv = a u (x) Px,   df/db = a u,   df/da = u,

and its length is |u| sqrt(a^2 |Px|^2 + a^2 + 1), independent of the random draws. The last two are multiples of u and
are kept as one block, sqrt(a^2 + 1) u: an isometry, so the kernel is the same. The kernel is the random-feature
Gaussian kernel times a^2 (Px)^T Py + a^2 + 1, normalised: for a = 0 it is that of DP-MERF, and df/dv adds the
derivative of the characteristic function at every frequency to its value. With a grid as fine as the image, v_j is a
full first layer; a coarse grid allows many more directions for the same length of the row.

The published network has ReLU units, whose gates have zero derivative almost everywhere, and ten outputs that are
summed, which repeats each number of df/da ten times in a row of 636,010. Because of a `break`, the public code embeds
only the first 5,000 records, at eleven times the necessary noise. Here there is one output (equivalent to a sum of
outputs with random weights), and all records are in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_positive, expect_within
from sfumato.privacy import Budget, GaussianSum, PrivateImages
from sfumato.synthesis.embedding import count_share_for, mean_embedding, with_count
from sfumato.synthesis.generator_training import (
    GENERATOR_SETTINGS,
    GeneratorSampler,
    GeneratorSettings,
    train_generator,
)
from sfumato.values import Images, Spec

LARGEST_ANSWER = 4_000_000  # numbers in the answer, all classes together; noise is drawn for each of them eight times
LARGEST_SUM = 4_000_000_000  # numbers in the rows of all records together; about 20 ns each
SMALL: dict[str, Any] = {
    "width": 200,
    "grid": 8,
    "length_scales": (0.3,),
    "steps": 400,
    "batch": 200,
    "latent": 4,
    "hidden": 128,
}


@dataclass(frozen=True)
class DPNTK(Synthesizer):
    """Hyperparameters, all public."""

    free: ClassVar = GENERATOR_SETTINGS

    width: int = 600  # pairs of hidden units
    grid: int = 7  # squares along a side, over which the input of v is averaged
    length_scales: tuple[float, ...] = (0.28, 0.16, 0.1)  # of w_j^T x, times the square root of the number of pixels
    outer_weight: float = 1.0  # a, in units of 2 / sqrt(pixels), so that |a Px| is at most 1
    count_share: float = 0.01  # of a row's squared norm, spent on the size of the class
    steps: int = 4_000
    batch: int = 500
    learning_rate: float = 5e-3
    latent: int = 10
    hidden: int = 512
    codes: int = 16
    drafts: int = 2  # made of each image; the one most like its class is kept
    seed: int = 0

    def __post_init__(self) -> None:
        expect_within(
            self,
            width=(1, 1_000_000),
            grid=(1, 1_000),
            outer_weight=(1e-9, 1e9),
            count_share=(1e-6, 0.9999),
            seed=(0, 2**31 - 2),
        )
        GeneratorSettings.of(self)
        expect_positive(self, "length_scales")

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        share = count_share_for(spec, budget.epsilon)
        small = spec.pixels <= 256  # small images need fewer features, and should take seconds
        steps = max(1_000, min(4_000, 4_000 * 1_024 // spec.pixels))  # a step costs as many operations as pixels
        made = cls(count_share=share, **(SMALL if small else {"steps": steps}))
        a_pair = made.row(spec) // made.width
        affordable = min(LARGEST_ANSWER // (a_pair * len(spec.classes)), LARGEST_SUM // (a_pair * max(spec.count, 1)))
        return replace(made, width=max(50, min(made.width, affordable)))

    def row(self, spec: Spec) -> int:
        """The length of a record's row: its gradient."""
        squares = spec.channels * min(self.grid, spec.height) * min(self.grid, spec.width)
        return 2 * self.width * (squares + 1)

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        return [
            GaussianSum(purpose="the mean gradient of an untrained network on each class, and how large the class is")
        ]

    def seconds(self, spec: Spec) -> float:
        training = GeneratorSettings.of(self).seconds(spec, distance=self.row(spec) + self.width * spec.pixels)
        return 5 + spec.count * self.row(spec) / 5e7 + training

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        draw = torch.Generator().manual_seed(self.seed)
        network = self.network(private.spec, draw)
        embedding, reliability = self.release(private, network)

        def distance(images: Tensor) -> Tensor:
            b, mean = images.shape[1], network.mean_gradients(images.flatten(2))
            pairs = (b * mean.square().sum((-2, -1)) - 1) / (b - 1)  # squared_mmd without storing the features
            return (reliability * (pairs - 2 * (mean * embedding).sum((-2, -1)))).mean()

        def likeness(images: Tensor, labels: Tensor) -> Tensor:
            units, inputs = network.factors(images.flatten(1))
            every = torch.einsum("bu,kug,bg->bk", units, embedding, inputs)
            return every.gather(1, labels[:, None])[:, 0]

        generator = train_generator(private.spec, GeneratorSettings.of(self), distance, draw=draw, what="dp-ntk")
        return GeneratorSampler(generator, private.spec.classes, likeness, drafts=self.drafts, seed=self.seed + 1)

    def network(self, spec: Spec, draw: torch.Generator) -> SineNetwork:
        scales = torch.tensor(self.length_scales).repeat(-(-self.width // len(self.length_scales)))[: self.width, None]
        directions = torch.randn(self.width, spec.pixels, generator=draw) / (scales * math.sqrt(spec.pixels))
        coarse = grid_averages(spec, self.grid)
        return SineNetwork(directions, coarse, 2 * self.outer_weight / math.sqrt(spec.pixels))

    def release(self, private: PrivateImages, network: SineNetwork) -> tuple[Tensor, Tensor]:
        """The noisy mean gradient of each class (k, 2m, g + 1), and its reliability (k,)."""
        (mechanism,) = private.ledger.calibrate(*self.plan(private.spec))
        query = private.open(mechanism)

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            units, inputs = network.factors(image.flatten())
            return with_count((units[:, None] * inputs).flatten(), self.count_share)

        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + 2m (g + 1))
        means, reliability = mean_embedding(sums, share=self.count_share, noise=mechanism.noise_multiplier or 0.0)
        return means.reshape(len(means), 2 * len(network.directions), -1), reliability


class SineNetwork:
    """The untrained network: its directions w_j (m, d), the grid P (g, d), and the size a of its outer weights."""

    def __init__(self, directions: Tensor, coarse: Tensor, outer: float) -> None:
        self.directions, self.coarse, self.outer = directions, coarse, outer

    def factors(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient at unit length is the outer product of these: (..., d) to (..., 2m) and (..., g + 1)."""
        centred = images - 0.5
        angles = centred @ self.directions.T
        units = torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(len(self.directions))  # |u| = 1
        both = torch.full_like(centred[..., :1], math.sqrt(self.outer**2 + 1))  # df/db and df/da in one
        inputs = torch.cat([self.outer * (centred @ self.coarse.T), both], dim=-1)
        return units, inputs / inputs.norm(dim=-1, keepdim=True)

    def mean_gradients(self, images: Tensor) -> Tensor:  # (k, b, d) -> (k, 2m, g + 1)
        units, inputs = self.factors(images)
        return units.transpose(1, 2) @ inputs / images.shape[1]


def grid_averages(spec: Spec, grid: int) -> Tensor:
    """P (g, d): each row averages a square of one channel, at unit length; squares do not overlap."""
    down, across = (torch.arange(n) * min(grid, n) // n for n in (spec.height, spec.width))
    square = down[:, None] * min(grid, spec.width) + across  # (h, w)
    masks = nn.functional.one_hot(square.flatten()).T.float().contiguous()  # (g / c, h w)
    return torch.kron(torch.eye(spec.channels), masks / masks.norm(dim=1, keepdim=True))
