"""Candidates for membership attacks: training records, and as many test records that are none of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError, NotApplicable
from sfumato.judging.near_duplicates import without_copies
from sfumato.values import Images, Reference

MOST_CANDIDATES, MOST_POPULATION = 2_000, 10_000
FEWEST = 20  # candidates on either side, below which no rate can be estimated


@dataclass(frozen=True, slots=True)
class Lineup:
    """Candidates of known membership, and other real images."""

    members: Images
    others: Images
    population: Images
    remaining: Tensor  # the row numbers of the training records that are no candidates
    copies: int  # test records left out, because they are training records too


def line_up(real: Reference) -> Lineup:
    """As many members as others, drawn at random; the remaining test records are the population."""
    if real.test is None:
        raise NotApplicable(
            "Expected a data set with a test split, because an attack is judged on records that were not trained on.",
            fix="give the data set with its test split, or one where you have kept some records from the release",
        )
    draw = torch.Generator().manual_seed(0)
    fresh = without_copies(real.test, real.train)
    fresh = fresh[torch.randperm(len(fresh), generator=draw)]
    count = min(MOST_CANDIDATES, len(real.train), len(fresh) // 2)
    if count < FEWEST:
        raise DataError(
            f"Expected {FEWEST} training records and twice as many test records that are none, "
            f"got {len(real.train)} and {len(fresh)}.",
            fix="attack with more real images, none of them in both splits",
        )
    order = torch.randperm(len(real.train), generator=draw)
    population = fresh[count : count + MOST_POPULATION]
    return Lineup(
        members=real.train.rows(order[:count]),
        others=real.test.rows(fresh[:count]),
        population=real.test.rows(population),
        remaining=order[count:],
        copies=len(real.test) - len(fresh),
    )
