"""How many training images each synthetic one is near to, against what real images are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.networks.features import compared, extractor
from sfumato.networks.neighbours import overlap
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
        by = extractor(self.extractor)
        fewest = self.neighbours + 1
        ours, theirs = compared(synthetic, real.train, by, most=self.most, seed=self.seed, fewest=fewest)
        density = overlap(ours, theirs, neighbours=self.neighbours).density
        value, standard_error = density.mean().item(), (density.std() / len(density) ** 0.5).item()
        return Score(
            name=f"density[{by.name}]",
            value=value,
            standard_error=standard_error,
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "compared_with": "training images",
                "synthetic_images": len(ours),
                "real_images": len(theirs),
                "neighbours": self.neighbours,
                "standard_error_is": "over synthetic images, with the neighbourhoods of the real ones held fixed",
            },
        )
