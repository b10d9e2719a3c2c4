"""Distance from synthetic images to the nearest training image, against that of real test images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import DataError, UsageError
from sfumato.values import Images, Reference, Score

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
CHUNK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Nearest(Metric):
    """Ratio of median distances, synthetic over test; well below 1 is an alarm, far above 1 only means far.

    A distance is the root mean square over pixels in [0, 1]. Without a test split, training images
    stand in for test images, each compared with all the others.
    """

    higher_is_better: ClassVar[bool] = True

    most: int = 2_000  # images on either side
    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        _check(synthetic, real)
        draw = torch.Generator().manual_seed(self.seed)
        train = real.train.unit().flatten(1)
        chosen = _some(len(synthetic), self.most, draw)
        ours = _to_nearest(synthetic.pixels[chosen], train)
        chosen = _some(len(real.held_out), self.most, draw)
        skip = chosen if real.test is None else None
        theirs = _to_nearest(real.held_out.pixels[chosen], train, skip=skip)
        threshold = theirs.quantile(0.001).item()
        pairs = ((_resample(ours, draw), _resample(theirs, draw)) for _ in range(self.resamples))
        ratios = torch.stack([_ratio(*pair) for pair in pairs])
        return Score(
            name="nearest",
            value=_ratio(ours, theirs).item(),
            standard_error=ratios.std().item(),
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "quantiles": list(QUANTILES),
                "synthetic_to_train": ours.quantile(torch.tensor(QUANTILES, dtype=ours.dtype)).tolist(),
                "test_to_train": theirs.quantile(torch.tensor(QUANTILES, dtype=ours.dtype)).tolist(),
                "near_duplicates": int((ours < threshold).sum()),
                "near_duplicate_threshold": threshold,
                "synthetic_images": len(ours),
                "test_images": len(theirs),
                "test_split": real.test is not None,
            },
        )


def _ratio(ours: Tensor, theirs: Tensor) -> Tensor:
    # A test set that is itself a copy has median 0; the floor of a thousandth of a grey level keeps 0/0 at 1.
    floor = 1e-3 / 255
    return (ours.median() + floor) / (theirs.median() + floor)


def _resample(values: Tensor, draw: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (len(values),), generator=draw)]


def _some(count: int, most: int, draw: torch.Generator) -> Tensor:
    return torch.randperm(count, generator=draw)[:most]


def _to_nearest(pixels: Tensor, train: Tensor, *, skip: Tensor | None = None) -> Tensor:
    """Exact distance of each image to its nearest row of train; `skip` names the image's own row."""
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


def _check(synthetic: Images, real: Reference) -> None:
    if synthetic.pixels.shape[1:] != real.train.pixels.shape[1:]:
        shapes = tuple(real.train.pixels.shape[1:]), tuple(synthetic.pixels.shape[1:])
        raise UsageError(f"Expected synthetic images of shape {shapes[0]}, got {shapes[1]}.")
    if not len(synthetic) or not len(real.held_out) or len(real.train) < 2:
        raise DataError("Expected at least 1 synthetic, 1 test and 2 training images.")
