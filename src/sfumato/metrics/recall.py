"""Share of training images that the synthetic ones could have been: variety."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.networks.features import compared, extractor
from sfumato.networks.neighbours import overlap, proportion
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Recall(Metric):
    """Kynkaanniemi et al. (2019): within the distance of some synthetic image to its k-th neighbour."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    neighbours: int = 3  # beside the image itself
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        by = extractor(self.extractor)
        fewest = self.neighbours + 1
        ours, theirs = compared(synthetic, real.train, by, most=self.most, seed=self.seed, fewest=fewest)
        recalled = overlap(ours, theirs, neighbours=self.neighbours).recalled
        value, standard_error = proportion(recalled)
        return Score(
            name=f"recall[{by.name}]",
            value=value,
            standard_error=standard_error,
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "compared_with": "training images",
                "synthetic_images": len(ours),
                "real_images": len(theirs),
                "neighbours": self.neighbours,
                "standard_error_is": "over real images, with the neighbourhoods of the synthetic ones held fixed",
            },
        )
