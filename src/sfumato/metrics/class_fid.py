"""Frechet distance within each class, so that images with the wrong label count as bad images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable
from sfumato.statistics.features import chosen, compared, extractor
from sfumato.statistics.gaussians import Frechet, frechet
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class ClassFid(Metric):
    """The mean over classes of the distance between same-class features, synthetic and training images."""

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = False

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    fewest: int = 20  # images of a class on either side, or the class is left out
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        by = extractor(self.extractor)
        found, counts = self._per_class(synthetic, real.train)
        if not found:
            raise NotApplicable(f"Expected a class with {self.fewest} images on either side, got none.")
        distances = {c: f.distance for c, f in found.items()}
        worst = max(distances, key=distances.__getitem__)
        return Score(
            name=f"class-fid[{by.name}]",
            value=sum(distances.values()) / len(found),
            standard_error=math.hypot(*(f.standard_error for f in found.values())) / len(found),
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "compared_with": "training images",
                "per_class": distances,
                "standard_errors": {c: f.standard_error for c, f in found.items()},
                "worst_class": worst,
                "worst_class_distance": distances[worst],
                "synthetic_and_real_images": counts,
                "left_out": [c for c in counts if c not in found],
                "bias": "fewer images make a distance larger: it is larger within classes than over all, "
                "and comparable only at equal numbers of images",
            },
        )

    def _per_class(self, synthetic: Images, train: Images) -> tuple[dict[str, Frechet], dict[str, tuple[int, int]]]:
        both = compared(synthetic, train, self.extractor, most=self.most, seed=self.seed)
        labels, their_labels = (s.labels[chosen(s, most=self.most, seed=self.seed)] for s in (synthetic, train))
        found, counts = {}, {}
        for number, name in enumerate(train.classes):
            a, b = both.ours[labels == number], both.theirs[their_labels == number]
            counts[name] = (len(a), len(b))
            if min(counts[name]) >= max(4, self.fewest):
                found[name] = frechet(a, b)
        return found, counts
