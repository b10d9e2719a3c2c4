"""How often the real image that is nearest to a re-generated one is the very one that it was made from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from sfumato.statistics.predicted_classes import grey

SIDE = 16  # pixels of the small grey images that are compared
CHUNK = 500  # images whose distances are taken at once
TIE = 1e-9  # relative to the longest squared length: differences below are rounding


def small_grey(pixels: Tensor) -> Tensor:
    """Small grey images as rows: uint8 (n, c, h, w) -> float64 (n, 256) in [0, 1]."""
    one_channel = grey(pixels)[:, :1] if pixels.shape[1] == 3 else pixels.float().mean(1, keepdim=True)
    return adaptive_avg_pool2d(one_channel.double() / 255, SIDE).flatten(1)


def nearest_source_share(released: Tensor, sources: Tensor) -> float:
    """The share of rows of `released` (n, d) whose nearest row of `sources` (n, d) has the same number.

    Where several are equally near, one of them is guessed; chance is 1/n.
    """
    lengths = sources.square().sum(1)  # (n,)
    slack = TIE * float(torch.maximum(lengths.max(), released.square().sum(1).max()))
    found = torch.zeros((), dtype=torch.float64)
    for start in range(0, len(released), CHUNK):
        rows = released[start : start + CHUNK]
        squares = rows.square().sum(1)[:, None] - 2 * rows @ sources.T + lengths  # (b, n)
        nearest = squares <= squares.amin(1, keepdim=True) + slack
        own = nearest[torch.arange(len(rows)), torch.arange(start, start + len(rows))]
        found += (own / nearest.sum(1)).sum()
    return float(found) / len(released)
