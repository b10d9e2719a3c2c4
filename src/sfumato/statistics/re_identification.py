"""Re-identification: whether a released image can be told to be made of its source, among all real images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.statistics.neighbours import proportion
from sfumato.statistics.predicted_classes import grey

SIDE = 16  # of the grey images that are compared where there are no codes
CHUNK = 256  # released images at a time


class Matched(NamedTuple):
    """How well released images lead back to their sources."""

    first: float  # share of released images whose nearest real image is their source
    standard_error: float  # of that share, over released images
    median_rank: float  # of the source among the real images, by distance; 1 is the nearest
    real: int  # images to choose from: by chance the share is 1 / real, and the median rank (real + 1) / 2


def matched(released: Tensor, real: Tensor, sources: Tensor) -> Matched:
    """Each released row is compared with all real ones; `sources` holds the number of the real one it was made of.

    Among real images that are equally near the order is taken as random: the share and the rank are expectations.
    """
    firsts, ranks = [], []
    for codes, own in zip(torch.split(released, CHUNK), torch.split(sources, CHUNK), strict=True):
        # not by a product of matrices, whose rounding would tell equal distances apart
        distances = torch.cdist(codes, real, compute_mode="donot_use_mm_for_euclid_dist")  # (b, real)
        to_source = distances.gather(1, own[:, None])
        nearer, equal = (distances < to_source).sum(1), (distances == to_source).sum(1)
        firsts.append((nearer == 0) / equal)
        ranks.append(nearer + (equal + 1) / 2)
    share, error = proportion(torch.cat(firsts))
    return Matched(share, error, torch.cat(ranks).quantile(0.5).item(), len(real))


def small_grey(pixels: Tensor) -> Tensor:
    """Images as 16 x 16 grey levels in [0, 1], (n, 256): what `matched` compares where there are no codes of faces."""
    luma = grey(pixels)[:, :1] if pixels.shape[1] == 3 else pixels
    return F.adaptive_avg_pool2d(luma.float() / 255, SIDE).flatten(1)
