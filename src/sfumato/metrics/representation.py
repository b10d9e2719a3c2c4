"""Are the rare classes still there: each class's share of the release against its real share, and its coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import DataError
from sfumato.statistics.distances import some
from sfumato.statistics.groups import resampled
from sfumato.statistics.same_kind import check_classes, check_shape, known, of_known_class
from sfumato.values import Images, Reference, Score

COVERED = (
    "share of real held-out images of the class with a released image of the class within the distance of their k-th "
    "real neighbour of the class, in pixels (after Naeem et al. 2020), as many images on each side"
)


@dataclass(frozen=True)
class Representation(Metric):
    """The smallest ratio, over classes, of the share in the release to the share in the real training set.

    1 where every class keeps its share, 0 where one is gone; it cannot exceed 1, as shares sum to 1. Labels alone
    do not show what the images are like, so coverage compares pixels.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = True

    neighbours: int = 5
    most: int = 2_000  # images on either side, for coverage
    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        _check(synthetic, real)
        classes, draw = synthetic.classes, torch.Generator().manual_seed(self.seed)
        ours, theirs = (
            torch.bincount(images.labels[of_known_class(images)], minlength=len(classes)).double()
            for images in (synthetic, real.train)
        )
        drawn = [(resampled(ours, draw), resampled(theirs, draw)) for _ in range(self.resamples)]
        ratios = _ratios(ours, theirs)
        worst = int(ratios.nan_to_num(math.inf).argmin())
        shares = {
            name: {"released": int(ours[c]), "real": int(theirs[c]), "ratio": float(ratios[c]) if theirs[c] else None}
            for c, name in enumerate(classes)
        }
        details = {
            "worst_class": classes[worst],
            "missing_classes": [name for c, name in enumerate(classes) if theirs[c] and not ours[c]],
            "classes": shares,
            "left_out": [f"class {c}: not in the real training set" for c in classes if shares[c]["ratio"] is None],
        }
        distances = torch.stack([_distance(*pair) for pair in drawn])
        smallest = torch.stack([_ratios(*pair).nan_to_num(math.inf).min() for pair in drawn])
        parts = [
            Score("class-share-distance", float(_distance(ours, theirs)), float(distances.std()), False, (self.seed,)),
            *self._coverage(synthetic, real, draw),
        ]
        return Score(
            "representation",
            float(ratios[worst]),
            float(smallest.std()),
            self.higher_is_better,
            (self.seed,),
            details,
            tuple(parts),
        )

    def _coverage(self, synthetic: Images, real: Reference, draw: torch.Generator) -> list[Score]:
        """The coverage of the class with the lowest one; empty where no class has enough held-out images."""
        sides = [synthetic, known(real.held_out), known(real.train)]
        count = min(self.most, *map(len, sides))
        released, tested, training = (images.rows(some(len(images), count, draw)) for images in sides)
        covered: dict[str, Tensor] = {}  # by class, whether each held-out image is
        by_real: dict[str, float] = {}
        for c, name in enumerate(synthetic.classes):
            targets = _of_class(tested, c)
            if len(targets) > self.neighbours:
                radii = _to_neighbour(targets, self.neighbours)
                covered[name] = _reached(targets, _of_class(released, c), radii)
                if real.test is not None:
                    by_real[name] = float(_reached(targets, _of_class(training, c), radii).mean())
        if not covered:
            return []
        shares = {name: float(yes.mean()) for name, yes in covered.items()}
        worst = min(shares, key=shares.__getitem__)
        error = float(covered[worst].std()) / math.sqrt(len(covered[worst]))
        left = [f"class {c}: {self.neighbours} images or fewer" for c in synthetic.classes if c not in shares]
        details = {
            "worst_class": worst,
            "definition": COVERED,
            "neighbours": self.neighbours,
            "images": count,
            "classes": shares,
            "with_real_training_images_as_the_release": by_real or None,
            "left_out": left,
        }
        return [Score("worst-class-coverage", shares[worst], error, True, (self.seed,), details)]


def _ratios(ours: Tensor, theirs: Tensor) -> Tensor:  # counts by class; nan or infinite where the real has none
    return (ours / ours.sum()) / (theirs / theirs.sum())


def _distance(ours: Tensor, theirs: Tensor) -> Tensor:
    """The total variation between shares."""
    return (ours / ours.sum() - theirs / theirs.sum()).abs().sum() / 2


def _of_class(images: Images, number: int) -> Tensor:
    return images.pixels[images.labels == number].flatten(1).float() / 255  # (m, d)


def _to_neighbour(targets: Tensor, neighbours: int) -> Tensor:
    """The distance of each image to its k-th nearest other one."""
    distances = torch.cdist(targets, targets).fill_diagonal_(math.inf)
    return distances.kthvalue(neighbours).values


def _reached(targets: Tensor, images: Tensor, radii: Tensor) -> Tensor:
    """1 for each target with one of the images inside its radius, 0 for the others."""
    if not len(images):
        return torch.zeros(len(targets), dtype=torch.float64)
    return (torch.cdist(targets, images).amin(1) <= radii).double()


def _check(synthetic: Images, real: Reference) -> None:
    for images in filter(None, (real.train, real.test)):
        check_classes(synthetic, images)
        check_shape(synthetic, images)
    if not of_known_class(synthetic).any() or not of_known_class(real.train).any():
        raise DataError("Expected at least 1 synthetic and 1 training image of a known class.")
