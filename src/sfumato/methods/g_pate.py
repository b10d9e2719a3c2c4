"""G-PATE (Long, Wang, Yang, Kailkhura, Zhang, Gunter, Li 2021): critics vote for bins of randomly projected gradients.

Each teacher, a critic on its own shard, says in which direction a generated image should change. The vector is
projected to a few random dimensions, which is public, each coordinate falls into one of `bins`, and all teachers vote
for their bins. The generator follows the bins with most noisy votes, where these are confident, projected back
(`aggregation=confident`), or the noisy mean of the bins (`aggregation=mean`). What has to be sound here:

- A teacher's vote for an image is one vector, with a block for each projected dimension, of length
  sqrt(dimensions (1 - 1 / bins)) when votes are centred. A record is in one shard and can change its teacher's whole
  vote, by at most twice that length.
- The vote on every generated image of every step is counted, in one charge, whether it was confident or not.
- Maxima and confidence are post-processing of the same noisy counts. The paper's data-dependent accounting, by which
  agreement costs less, is not used.

Differences: directions are in the lowest cosine frequencies instead of pixels; the dimensions of an image are drawn
from one random rotation of these, so that they are orthonormal; bins are quantiles of a normal distribution, and few,
because with many bins twice the bound is further than two votes can be apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_one_of, expect_within
from sfumato.privacy import Mechanism, PrivateImages, Teachers
from sfumato.synthesis.hinge_critics import HingeCritic
from sfumato.synthesis.shard_guidance import Guide, ShardGuidance
from sfumato.synthesis.shard_networks import State
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class GPATE(ShardGuidance, Synthesizer):
    """Hyperparameters, all public: these and those of `ShardGuidance`."""

    dimensions: int = 10  # that a direction is projected to
    bins: int = 2  # of a projected coordinate
    aggregation: str = "mean"  # or "confident"
    threshold: float = 1.0  # that confident counts exceed, in standard deviations of the noise

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, aggregation=("mean", "confident"))
        expect_within(self, dimensions=(1, 10_000), bins=(2, 1_000), threshold=(0, 1_000))

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        return self.questions("votes on how generated images should change, by critics on parts of the data")

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        draw = torch.Generator().manual_seed(self.seed + 2)
        projections = Projections.drawn(self.sees(spec).length, self.dimensions, draw)
        model = BinVoter.of(self, spec, projections=projections, bins=self.bins)
        threshold = self.threshold if self.aggregation == "confident" else None
        guide = BinGuide(projections, self.bins, threshold, draw)
        return self.trained(private, self.plan(spec), model, guide, what="g-pate")


class Projections(NamedTuple):
    """A random rotation of directions, whose coordinates are dealt to groups: each group is one random projection."""

    rotation: Tensor  # (d, groups * dimensions): orthonormal columns, then columns of zeros
    dimensions: int

    @classmethod
    def drawn(cls, length: int, dimensions: int, draw: torch.Generator) -> Projections:
        dimensions = min(dimensions, length)
        rotation = torch.linalg.qr(torch.randn(length, length, generator=draw))[0]
        return cls(torch.nn.functional.pad(rotation, (0, -length % dimensions)), dimensions)

    @property
    def groups(self) -> int:
        return self.rotation.shape[1] // self.dimensions

    def project(self, vector: Tensor, group: Tensor) -> Tensor:  # (d,), () -> (dimensions,)
        """A comparison instead of an index, because vmap takes no index here."""
        rotated = (vector @ self.rotation).reshape(self.groups, self.dimensions)
        return (group == torch.arange(self.groups)).float() @ rotated

    def back(self, projected: Tensor, groups: Tensor) -> Tensor:  # (b, dimensions), (b,) -> (b, d)
        """The transpose of the projection."""
        placed = torch.nn.functional.one_hot(groups, self.groups).float()[..., None] * projected[:, None]
        return placed.flatten(1) @ self.rotation.T


def bin_edges(bins: int) -> Tensor:
    """Quantiles of the standard normal distribution, which the coordinates of a random unit vector are close to."""
    edges: Tensor = torch.special.ndtri(torch.arange(1, bins) / bins)
    return edges


def bin_centres(bins: int) -> Tensor:
    centres: Tensor = torch.special.ndtri((torch.arange(bins) + 0.5) / bins)
    return centres


@dataclass(frozen=True)
class BinVoter(HingeCritic):
    """The critic of one shard, which votes for a bin of each projected coordinate of its direction."""

    projections: Projections
    bins: int

    def answer(self, state: State, query: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Centred votes, one block of bins after another: (dimensions * bins,)."""
        z, label, group = query
        projected = self.projections.project(self.direction(state, z, label), group) * math.sqrt(len(z))
        bins = (projected[:, None] > bin_edges(self.bins)).sum(1)
        return ((bins[:, None] == torch.arange(self.bins)).float() - 1 / self.bins).flatten()


class BinGuide(Guide):
    """Directions from noisy votes: the mean of the bins, or the bins with most votes where these are confident."""

    def __init__(self, projections: Projections, bins: int, threshold: float | None, draw: torch.Generator) -> None:
        self._projections = projections
        self._bins = bins
        self._threshold = threshold
        self._draw = draw
        self._bound = math.sqrt(projections.dimensions * (1 - 1 / bins))

    def directions(self, teachers: Teachers, seen: Tensor, labels: Tensor) -> Tensor:
        groups = torch.randint(self._projections.groups, (len(seen),), generator=self._draw)
        votes = teachers((seen, labels, groups), l2_bound=self._bound).float()
        votes = votes.reshape(len(seen), self._projections.dimensions, self._bins)
        centres = bin_centres(self._bins)
        if self._threshold is None:
            return self._projections.back(votes @ centres, groups)
        most = votes.max(2)
        noise = 2 * self._bound * (teachers.mechanism.noise_multiplier or 0.0)
        chosen = centres[most.indices] * (most.values > self._threshold * noise)
        return self._projections.back(chosen, groups)

    def state(self) -> dict[str, Tensor]:
        return {"draw": self._draw.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        if state:
            self._draw.set_state(state["draw"])
