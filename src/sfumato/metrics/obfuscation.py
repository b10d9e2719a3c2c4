"""Does a release look like the public images it was made from, or like the private ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import DataError, NotApplicable, UsageError
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
from sfumato.training.student import Schedule, predict, train
from sfumato.values import Images, Reference, Score

SIDES = ("released", "other")
FEWEST = 20  # images of either kind that a classifier needs


@dataclass(frozen=True)
class Obfuscation(Metric):
    """Ratio of median distances to the nearest private image, released over public.

    About 1: the release is as far from the private images as the public ones are. Well below 1: it has moved
    towards them. Two classifiers try to distinguish released from private and released from public images: an
    accuracy of 0.5 means that they cannot.
    """

    judges: ClassVar = "privacy"
    higher_is_better: ClassVar[bool] = True

    most: int = 2_000  # images of each kind
    resamples: int = 200  # of the bootstrap
    images_seen: int = 20_000  # bound on the work of one classifier
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        public = _check(synthetic, real)
        draw = torch.Generator().manual_seed(self.seed)
        private = real.train.unit().flatten(1)
        ours = to_nearest(synthetic.pixels[some(len(synthetic), self.most, draw)], private)
        test = held_out_to_train(real, private, most=self.most, draw=draw)
        theirs = to_nearest(public.pixels[some(len(public), self.most, draw)], private)
        return Score(
            name="obfuscation",
            value=ratio_of_medians(ours, theirs).item(),
            standard_error=error_of_ratio(ours, theirs, resamples=self.resamples, draw=draw),
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "quantiles": list(QUANTILES),
                "released_to_private": quantiles(ours),
                "public_to_private": quantiles(theirs),
                "test_to_private": quantiles(test),
                "test_split": real.test is not None,
                "accuracy_against_private": self._accuracy(synthetic.pixels, real.train.pixels, draw),
                "accuracy_against_public": self._accuracy(synthetic.pixels, public.pixels, draw),
            },
        )

    def _accuracy(self, released: Tensor, others: Tensor, draw: torch.Generator) -> float | None:
        """Balanced accuracy of a small CNN on halves that it was not trained on; None where there are too few."""
        count = min(len(released), len(others), self.most) // 2
        if count < FEWEST:
            return None
        rows = [some(len(pixels), 2 * count, draw) for pixels in (released, others)]
        sides = released[rows[0]], others[rows[1]]
        labels = torch.arange(2).repeat_interleave(count)
        training = Images(torch.cat([side[:count] for side in sides]), labels, SIDES)
        schedule = Schedule.short("small-cnn", loss="labels", images_seen=self.images_seen)
        judge = train(training, schedule, seed=self.seed, what="obfuscation")
        unseen = torch.cat([side[count:] for side in sides])
        return (predict(judge, unseen) == labels).double().mean().item()


def _check(synthetic: Images, real: Reference) -> Images:
    """The public images, after checks of shapes and counts."""
    if real.public is None:
        raise NotApplicable(
            "Expected the public images that the release was made from, got none.", fix="name them with --public"
        )
    for images in filter(None, (real.train, real.test, real.public)):
        if images.pixels.shape[1:] != synthetic.pixels.shape[1:]:
            shapes = tuple(synthetic.pixels.shape[1:]), tuple(images.pixels.shape[1:])
            raise UsageError(f"Expected real and public images of shape {shapes[0]}, got {shapes[1]}.")
    check_counts(synthetic, real)
    if not len(real.public):
        raise DataError("Expected at least 1 public image, got none.")
    return real.public
