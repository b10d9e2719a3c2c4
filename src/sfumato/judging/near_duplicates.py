"""Near duplicates: released images nearer to a training image than test images are, and whether chance explains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from sfumato.errors import DataError
from sfumato.statistics.densities import principal_axes
from sfumato.statistics.distances import CHUNK_BYTES, to_nearest
from sfumato.values import Images, Reference, Release, Score

NEAR_DUPLICATES = "near-duplicates"
QUANTILE = 0.001  # of the distances from test images to their nearest training image
ALARM = 1e-6  # chance below which a release is flagged
MOST = 10_000  # images on either side that are compared with the whole of the training records
SHOWN = 10
AXES = 64  # principal axes along which distances are bounded first
FIRST = 200  # images whose distances are taken at once
SLACK = 1e-3  # allowance for rounding of the distances along the axes


@dataclass(frozen=True, slots=True)
class Pairs:
    """Released images beside the training images that they are nearest to, nearest first; private."""

    released: Tensor  # uint8 (n, c, h, w)
    training: Tensor  # uint8 (n, c, h, w)
    distances: Tensor  # (n,)


def near_duplicates(release: Release, real: Reference, *, seed: int = 0) -> tuple[Score, Pairs]:
    """The share of released images that are near duplicates, and the nearest pairs.

    If released images were as far from the training images as test images are, the share below the k-th smallest of
    M test distances would be Beta(k, M + 1 - k) distributed, and the count among n images beta-binomial: an exact
    test.
    """
    if real.test is None:
        raise DataError("Expected test images to compare near duplicates with, got none.")
    draw = torch.Generator().manual_seed(seed)
    kept = without_copies(real.train, real.test)
    fresh_rows = without_copies(real.test, real.train)
    if not len(kept) or len(fresh_rows) < 2:
        raise DataError(
            "Expected test images that are not training images too, got none.", fix="give a test split of other images"
        )
    train = real.train.pixels[kept].flatten(1).float() / 255
    _, axes = principal_axes(train, most=AXES, draw=draw)
    fresh = real.test.pixels[_some(fresh_rows, draw)]
    rank = max(1, math.ceil(QUANTILE * len(fresh)))
    usual = small_distances(fresh, train, axes, rank=rank).sort().values
    threshold = float(usual[rank - 1])
    released = (release.images, release.images.transfer, release.images.network)
    subsets = [images for images in released if images is not None]
    # As many of each subset, because a large one must not hide copies in a small one.
    chosen = torch.cat([images.pixels[_some(torch.arange(len(images)), draw)] for images in subsets])
    ours = small_distances(chosen, train, axes, rank=SHOWN, below=threshold)
    count = int((ours < threshold).sum())
    chance = float(stats.betabinom.sf(count - 1, len(ours), rank, len(usual) + 1 - rank))
    details = {
        "count": count,
        "exact_copies": int((ours == 0).sum()),
        "released_images_compared": len(ours),
        "released_images": sum(map(len, subsets)),
        "threshold": threshold,
        "test_images_compared": len(usual),
        "expected_share": rank / (len(usual) + 1),
        "p_value": chance,
        "flagged": chance < ALARM,
        "test_records_also_in_training": len(real.test) - len(fresh_rows),
    }
    share = count / len(ours)
    error = math.sqrt(share * (1 - share) / len(ours))
    score = Score(NEAR_DUPLICATES, share, error, higher_is_better=False, seeds=(seed,), details=details)
    return score, _nearest(chosen, ours, real.train.pixels[kept])


def small_distances(pixels: Tensor, train: Tensor, axes: Tensor, *, rank: int, below: float = 0.0) -> Tensor:
    """Distances to the nearest training row: exact where below a limit or among the smallest, else infinite.

    The distance along a few principal axes is cheap and never larger than the full one, so it rules most images out.
    """
    rows = pixels.flatten(1).float() / 255
    least = _least_distances(rows @ axes, train @ axes) / math.sqrt(rows.shape[1])
    found = torch.full((len(pixels),), torch.inf, dtype=torch.float64)
    first = least.argsort()[: max(rank, FIRST)]
    found[first] = to_nearest(pixels[first], train)
    limit = max(below, float(found.sort().values[min(rank, len(found)) - 1]))
    more = ((least <= limit + SLACK) & found.isinf()).nonzero()[:, 0]
    if len(more):
        found[more] = to_nearest(pixels[more], train)
    return found


def _least_distances(rows: Tensor, others: Tensor) -> Tensor:
    half_norms = others.square().sum(1) / 2
    parts = torch.split(rows, max(1, CHUNK_BYTES // (4 * len(others))))
    squares = [part.square().sum(1) - 2 * (part @ others.T - half_norms).amax(1) for part in parts]
    return torch.cat(squares).clamp(min=0).sqrt().double()


def without_copies(images: Images, others: Images) -> Tensor:
    """The row numbers of images of which the others hold no exact copy."""
    known = set(_bytes(others))
    return torch.tensor([at for at, image in enumerate(_bytes(images)) if image not in known], dtype=torch.int64)


def describe(score: Score) -> str:
    """The score in a sentence or two."""
    details: dict[str, Any] = score.details
    verdict = "FLAGGED: chance does not explain it" if details["flagged"] else "not flagged"
    return (
        f"{details['count']} of {details['released_images_compared']} released images compared "
        f"({details['exact_copies']} exact copies) are nearer to a training image than {details['threshold']:.4g}; "
        f"a release without copies has a share of about {details['expected_share']:.2g} "
        f"(p = {details['p_value']:.2g}, {verdict}). "
        f"{details['test_records_also_in_training']} test records that are training records too were left out."
    )


def _nearest(released: Tensor, distances: Tensor, train: Tensor) -> Pairs:
    order = distances.argsort()[:SHOWN]
    rows = train.flatten(1).float()
    partners = torch.cat([torch.cdist(image[None], rows) for image in released[order].flatten(1).float()]).argmin(1)
    return Pairs(released[order], train[partners], distances[order])


def _some(numbers: Tensor, draw: torch.Generator) -> Tensor:
    return numbers[torch.randperm(len(numbers), generator=draw)[:MOST]]


def _bytes(images: Images) -> list[bytes]:
    return [row.tobytes() for row in images.pixels.flatten(1).contiguous().numpy()]
