"""Distance from synthetic images to the nearest training image, against that of real test images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from sfumato.contracts import Metric
from sfumato.statistics.distances import (
    QUANTILES,
    check_counts,
    error_of_ratio,
    held_out_to_train,
    quantiles,
    ratio_of_medians,
    some,
    to_nearest,
)
from sfumato.statistics.same_kind import check_shape
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class Nearest(Metric):
    """Ratio of median distances, synthetic over test; well below 1 suggests copies, well above 1 means distant images.

    A distance is the root mean square over pixels in [0, 1]. Without a test split, training images
    stand in for test images, each compared with all the others.
    """

    judges: ClassVar = "privacy"
    higher_is_better: ClassVar[bool] = True

    most: int = 2_000  # images on either side
    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        check_shape(synthetic, real.train)
        check_counts(synthetic, real)
        draw = torch.Generator().manual_seed(self.seed)
        train = real.train.unit().flatten(1)
        chosen = some(len(synthetic), self.most, draw)
        ours = to_nearest(synthetic.pixels[chosen], train)
        theirs = held_out_to_train(real, train, most=self.most, draw=draw)
        threshold = theirs.quantile(0.001).item()
        return Score(
            name="nearest",
            value=ratio_of_medians(ours, theirs).item(),
            standard_error=error_of_ratio(ours, theirs, resamples=self.resamples, draw=draw),
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "quantiles": list(QUANTILES),
                "synthetic_to_train": quantiles(ours),
                "test_to_train": quantiles(theirs),
                "near_duplicates": int((ours < threshold).sum()),
                "near_duplicate_threshold": threshold,
                "synthetic_images": len(ours),
                "test_images": len(theirs),
                "test_split": real.test is not None,
            },
        )
