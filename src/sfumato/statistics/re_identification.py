"""Re-identification: whether a released image leads back to its source, or to its person, among all real images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.progress import track
from sfumato.statistics.neighbours import proportion
from sfumato.statistics.predicted_classes import grey

SIDE = 16  # of the grey images that are compared where there are no codes
CHUNK = 256  # released images at a time


class Matched(NamedTuple):
    """How well released images lead back to their sources, or to the persons on these."""

    first: float  # share of released images whose nearest real image is their source, or of the same person
    standard_error: float  # of that share, over released images
    median_rank: float  # of the source, or of the nearest image of the same person, by distance; 1 is the nearest
    real: int  # images to choose from
    chance: float  # what the share is where the released images tell nothing


def matched(released: Tensor, real: Tensor, sources: Tensor, people: Tensor | None = None) -> Matched:
    """Each released row is compared with all real ones; `sources` holds the number of the real one it was made of.

    `people` says who is on each real image: any image of the same person is a match then, for it gives the person away
    as the source does. Where it is not known, the source alone is one. Among real images that are equally near the
    order is taken as random: the share and the rank are expectations.
    """
    whose = torch.arange(len(real)) if people is None else people
    firsts, ranks, chances = [], [], []
    parts = torch.split(torch.arange(len(released)), CHUNK)
    for rows in track(parts, what="nearest real images", total=len(parts)):
        codes, own = released[rows], sources[rows]
        # not by a product of matrices, whose rounding would tell equal distances apart
        distances = torch.cdist(codes, real, compute_mode="donot_use_mm_for_euclid_dist")  # (b, real)
        same = whose[own][:, None] == whose  # (b, real): which would be a match
        to_match = distances.where(same, torch.inf).amin(1, keepdim=True)
        nearer, equal = (distances < to_match).sum(1), distances == to_match
        matches = (equal & same).sum(1)  # of those that are as near
        firsts.append((nearer == 0) * matches / equal.sum(1))
        ranks.append(nearer + (equal.sum(1) + 1) / (matches + 1))  # the first of several in a random order
        chances.append(same.double().mean(1))
    share, error = proportion(torch.cat(firsts))
    median = torch.cat(ranks).quantile(0.5).item()
    return Matched(share, error, median, len(real), torch.cat(chances).mean().item())


def small_grey(pixels: Tensor) -> Tensor:
    """Images as 16 x 16 grey levels in [0, 1], (n, 256): what `matched` compares where there are no codes of faces."""
    luma = grey(pixels)[:, :1] if pixels.shape[1] == 3 else pixels
    return F.adaptive_avg_pool2d(luma.float() / 255, SIDE).flatten(1)
