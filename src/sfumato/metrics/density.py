"""How many training images each synthetic image is near to, relative to real images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.neighbours import NeighbourhoodMetric
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Density(Metric, NeighbourhoodMetric):
    """Naeem et al. (2020): neighbourhoods of training images that it lies in, over k; about 1 for real images."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    neighbours: int = 5  # beside the image itself

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        return self.score_overlap("density", "density", synthetic, real.train)
