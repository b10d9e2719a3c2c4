"""How many training images each synthetic one is near to, against what real images are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.statistics.features import compared
from sfumato.statistics.neighbours import overlap
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Density(Metric):
    """Naeem et al. (2020): neighbourhoods of training images that it lies in, over k; about 1 for real images."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    neighbours: int = 5  # beside the image itself
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        fewest = self.neighbours + 1
        both = compared(synthetic, real.train, self.extractor, most=self.most, seed=self.seed, fewest=fewest)
        found = overlap(both.ours, both.theirs, neighbours=self.neighbours).density
        value, error = found.mean().item(), (found.std() / len(found) ** 0.5).item()
        return both.score(
            "density",
            value,
            error,
            higher_is_better=self.higher_is_better,
            neighbours=self.neighbours,
            error_is="over synthetic images, with the neighbourhoods of the real ones held fixed",
        )
