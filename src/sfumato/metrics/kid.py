"""Kernel distance between features of synthetic and of real training images; few images do not bias it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.features import compared
from sfumato.statistics.neighbours import kernel_distance
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Kid(Metric):
    """Binkowski et al. (2018): the squared mean discrepancy under a cubic kernel; about 0, also below, where alike."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = False

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    subset: int = 1_000  # images that are compared all with all; subsets are disjoint
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        both = compared(synthetic, real.train, self.extractor, most=self.most, seed=self.seed, fewest=4)
        found = kernel_distance(both.ours, both.theirs, subset=self.subset)
        return both.score(
            "kid",
            found.value,
            found.standard_error,
            higher_is_better=self.higher_is_better,
            subsets=max(1, min(len(both.ours), len(both.theirs)) // self.subset),
            error_is="the jackknife's, over the images of both sides",
        )
