"""Share of synthetic images that look real: they lie where training images lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.neighbours import NeighbourhoodMetric
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Precision(Metric, NeighbourhoodMetric):
    """Kynkaanniemi et al. (2019): within the distance of some training image to its k-th neighbour."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    neighbours: int = 3  # beside the image itself

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        return self.score_overlap("precision", "precise", synthetic, real.train)
