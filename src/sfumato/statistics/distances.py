"""Exact distances between sets of images: to the nearest one, and what a bootstrap makes of them."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.values import Images, Reference

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
CHUNK_BYTES = 64 * 2**20


def to_nearest(pixels: Tensor, train: Tensor, *, skip: Tensor | None = None) -> Tensor:
    """Distance of each image to its nearest row of train; `skip` names the image's own row.

    A distance is the root mean square over pixels in [0, 1]; `train` holds such rows already.
    """
    queries = pixels.flatten(1).float() / 255  # (q, d)
    half_norms = train.square().sum(1) / 2  # (n,)
    size = max(1, CHUNK_BYTES // (4 * len(train)))
    distances = []
    for start in range(0, len(queries), size):
        chunk = queries[start : start + size]
        closeness = chunk @ train.T - half_norms  # |a - b|^2 = |a|^2 - 2 closeness
        if skip is not None:
            closeness[torch.arange(len(chunk)), skip[start : start + size]] = -torch.inf
        # The expansion cancels for near copies, so it only finds the neighbour; the distance is taken afresh.
        neighbours = train[closeness.argmax(1)]
        distances.append((chunk - neighbours).square().mean(1).sqrt())
    return torch.cat(distances).double()


def held_out_to_train(real: Reference, train: Tensor, *, most: int, draw: torch.Generator) -> Tensor:
    """Distances of some held-out images to their nearest training image; `train` holds the training rows.

    Without a test split, training images stand in for test images, each compared with all the others.
    """
    chosen = some(len(real.held_out), most, draw)
    skip = chosen if real.test is None else None
    return to_nearest(real.held_out.pixels[chosen], train, skip=skip)


def check_counts(synthetic: Images, real: Reference) -> None:
    """Refuse sets that are too small for distances to the nearest image."""
    if not len(synthetic) or not len(real.held_out) or len(real.train) < 2:
        raise DataError("Expected at least 1 synthetic, 1 test and 2 training images.")


def ratio_of_medians(ours: Tensor, theirs: Tensor) -> Tensor:
    # A set that is itself a copy has median 0; the floor of a thousandth of a grey level keeps 0/0 at 1.
    floor = 1e-3 / 255
    return (ours.median() + floor) / (theirs.median() + floor)


def error_of_ratio(ours: Tensor, theirs: Tensor, *, resamples: int, draw: torch.Generator) -> float:
    """The bootstrap's standard error of the ratio of medians."""
    pairs = ((_resample(ours, draw), _resample(theirs, draw)) for _ in range(resamples))
    return torch.stack([ratio_of_medians(*pair) for pair in pairs]).std().item()


def quantiles(values: Tensor) -> list[float]:
    """At `QUANTILES`."""
    found: list[float] = values.quantile(torch.tensor(QUANTILES, dtype=values.dtype)).tolist()
    return found


def some(count: int, most: int, draw: torch.Generator) -> Tensor:
    """The numbers of so many images, or of all, in random order."""
    return torch.randperm(count, generator=draw)[:most]


def _resample(values: Tensor, draw: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (len(values),), generator=draw)]
