"""Share of training images that have a synthetic image near them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.features import compared
from sfumato.statistics.neighbours import overlap, proportion
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Coverage(Metric):
    """Naeem et al. (2020): nearer than the k-th neighbour among the training images."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    neighbours: int = 5  # beside the image itself
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        fewest = self.neighbours + 1
        both = compared(synthetic, real.train, self.extractor, most=self.most, seed=self.seed, fewest=fewest)
        value, error = proportion(overlap(both.ours, both.theirs, neighbours=self.neighbours).covered)
        return both.score(
            "coverage",
            value,
            error,
            higher_is_better=self.higher_is_better,
            neighbours=self.neighbours,
            error_is="over real images, with the synthetic ones held fixed",
        )
