"""DataLens (Wang, Wu, Long, Rimanic, Zhang, Li 2021): critics vote with the signs of their largest gradients.

Each teacher, a critic on its own shard, says in which direction a generated image should change; of this vector the
`kept` largest coordinates are kept, as signs. The signs are summed over all teachers with Gaussian noise; sums below a
threshold count as nothing, and the generator follows the signs of the others (`follow=signs`), or the sums themselves
(`follow=sums`). What has to be sound here:

- A teacher's answer has length sqrt(kept), and a record is in one shard, which can turn the whole answer around: the
  sums change by at most 2 sqrt(kept), and noise is calibrated to that.
- Every generated image of every step is a sum of its own, and all of them are counted, in one charge.
- Threshold and signs are post-processing. The accounting does not depend on how far teachers agree.

Differences: coordinates are the lowest cosine frequencies instead of pixels, so that small critics learn from few
records. Signs of what is kept are deterministic; stochastic ones have the same bound and add noise of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_one_of, expect_within
from sfumato.privacy import Mechanism, PrivateImages, Teachers
from sfumato.synthesis.hinge_critics import HingeCritic
from sfumato.synthesis.shard_guidance import Guide, ShardGuidance
from sfumato.synthesis.shard_networks import State
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class DataLens(ShardGuidance, Synthesizer):
    """Hyperparameters, all public: these and those of `ShardGuidance`."""

    kept: int = 20  # coordinates of a critic's gradient
    follow: str = "sums"  # or "signs"
    threshold: float = 1.0  # of signs, in standard deviations of the noise

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, follow=("sums", "signs"))
        expect_within(self, kept=(1, 10**6), threshold=(0, 1_000))

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        return self.questions("the signs of how generated images should change, by critics on parts of the data")

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        kept = min(self.kept, self.sees(private.spec).length)
        model = CompressedCritic.of(self, private.spec, kept=kept)
        guide = SignGuide(kept, self.threshold if self.follow == "signs" else None)
        return self.trained(private, self.plan(private.spec), model, guide, what="datalens")


@dataclass(frozen=True)
class CompressedCritic(HingeCritic):
    """The critic of one shard, which answers with the signs of the largest coordinates of its direction."""

    kept: int

    def answer(self, state: State, query: tuple[Tensor, Tensor]) -> Tensor:
        z, label = query
        return largest_signs(self.direction(state, z, label), self.kept)


def largest_signs(vector: Tensor, kept: int) -> Tensor:  # (d,) -> (d,) of -1, 0, 1
    """Top-k sign compression."""
    sizes = vector.abs()
    return vector.sign() * (sizes >= sizes.topk(kept).values[-1])


class SignGuide(Guide):
    """Directions from noisy sums of signs: these sums, or the signs of those above the threshold."""

    def __init__(self, kept: int, threshold: float | None) -> None:
        self._bound = math.sqrt(kept)
        self._threshold = threshold

    def directions(self, teachers: Teachers, seen: Tensor, labels: Tensor) -> Tensor:
        sums = teachers((seen, labels), l2_bound=self._bound).float()  # (b, d)
        if self._threshold is None:
            return sums
        noise = 2 * self._bound * (teachers.mechanism.noise_multiplier or 0.0)
        return sums.sign() * (sums.abs() > self._threshold * noise)
