"""Share of training images that have a synthetic image near them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.neighbours import NeighbourhoodMetric
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Coverage(Metric, NeighbourhoodMetric):
    """Naeem et al. (2020): nearer than the k-th neighbour among the training images."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    neighbours: int = 5  # beside the image itself

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        return self.score_overlap("coverage", "covered", synthetic, real.train)
