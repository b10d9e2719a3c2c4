"""Frechet distance between features of synthetic and of real training images, and what few images add to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sfumato.contracts import Metric
from sfumato.statistics.features import compared
from sfumato.statistics.gaussians import frechet, frechet_distance
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Fid(Metric):
    """Heusel et al. (2017): both sides as one Gaussian each; against the training images, as DPImageBench does."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = False

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        both = compared(synthetic, real.train, self.extractor, most=self.most, seed=self.seed, fewest=4)
        found = frechet(both.ours, both.theirs)
        return both.score(
            "fid",
            found.distance,
            found.standard_error,
            higher_is_better=self.higher_is_better,
            features=both.ours.shape[1],
            infinitely_many_images=extrapolated(both.ours, both.theirs, found.distance),
            bias="fewer images make this distance larger: compare it only at equal numbers of images",
            error_is="of the sampling of images on both sides, by each image's influence",
        )


def extrapolated(ours: Tensor, theirs: Tensor, whole: float) -> float | None:
    """The line in 1 / images through the whole and the mean of its halves, at zero (Chong and Forsyth 2020).

    None where half of the images are fewer than their features: the distance is not linear in 1 / images there.
    """
    if min(len(ours), len(theirs)) // 2 <= ours.shape[1]:
        return None
    halves = zip(ours.tensor_split(2), theirs.tensor_split(2), strict=True)
    first, second = (frechet_distance(a, b) for a, b in halves)
    return 2 * whole - (first + second) / 2
