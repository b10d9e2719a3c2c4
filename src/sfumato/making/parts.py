"""Records dealt into the four parts of a hidden release: Tr trains, V stops the training, G is released, Test tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.errors import UsageError
from sfumato.lab.provenance import PARTS

if TYPE_CHECKING:
    from torch import Generator, Tensor

SHARES = (55, 6, 24, 15)  # of Tr, V, G and Test


def split_parts(
    attribute: Tensor, *, shares: Sequence[float] = SHARES, seed: int = 0, person: Tensor | None = None
) -> Tensor:
    """The part of each record, int64 (n,), as a number in `PARTS`; the same seed deals the same parts.

    Each value of the attribute is divided by the shares, to within one record. Where it is known whose record each is,
    all records of a person are in one part, and the shares are met as nearly as that allows.
    """
    import torch

    fractions = _fractions(shares)
    _check_numbers(attribute, person)
    generator = torch.Generator().manual_seed(seed)
    _, values = attribute.unique(return_inverse=True)
    if person is None:
        return _by_record(values, fractions, generator)
    return _by_person(values, person.unique(return_inverse=True)[1], fractions, generator)


def _by_record(values: Tensor, fractions: Sequence[Fraction], generator: Generator) -> Tensor:
    import torch

    parts = torch.empty_like(values)
    owed = [Fraction(0)] * len(fractions)  # what the values so far should have given to a part and did not
    for value in range(_count(values)):
        mine = (values == value).nonzero().flatten()
        exact = [len(mine) * fraction for fraction in fractions]
        sizes = [math.floor(size) for size in exact]
        # What rounding down has left goes where it was not exact, one record each, and first to the parts that lack.
        inexact = [part for part, size in enumerate(exact) if size != sizes[part]]
        inexact.sort(key=lambda part: owed[part] + exact[part] - sizes[part], reverse=True)  # noqa: B023 - used at once
        for part in inexact[: len(mine) - sum(sizes)]:
            sizes[part] += 1
        owed = [lack + size - given for lack, size, given in zip(owed, exact, sizes, strict=True)]
        dealt = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        parts[mine[torch.randperm(len(mine), generator=generator)]] = dealt
    return parts


def _by_person(values: Tensor, person: Tensor, fractions: Sequence[Fraction], generator: Generator) -> Tensor:
    """One person after the other, to the part where the counts' squares over their shares grow least by that."""
    import torch

    shares = torch.tensor([float(fraction) for fraction in fractions], dtype=torch.float64)
    people = torch.zeros(_count(person), _count(values), dtype=torch.float64)  # (p, k): how many records of each value
    people.index_put_((person, values), torch.ones(1, dtype=torch.float64), accumulate=True)
    wanted = shares[:, None] * people.sum(0)  # (4, k)
    held = torch.zeros_like(wanted)
    part_of = torch.empty(len(people), dtype=torch.int64)
    order = torch.randperm(len(people), generator=generator)
    # Large ones first, because small ones can even out what they leave; about equal ones as they come.
    sizes = people[order].sum(1).log2().floor()
    for number in order[sizes.argsort(descending=True, stable=True)].tolist():
        mine = people[number]
        growth = (mine * (2 * held + mine) / wanted).sum(1)  # (4,)
        part = int(growth.nan_to_num(nan=math.inf).argmin())  # 0 / 0 where a part has no share
        part_of[number] = part
        held[part] += mine
    return part_of[person]


def _count(numbers: Tensor) -> int:
    """How many values there are of numbers that count them from 0."""
    return int(numbers.max()) + 1 if len(numbers) else 0


def _fractions(shares: Sequence[float]) -> list[Fraction]:
    right = len(shares) == len(PARTS) and all(math.isfinite(share) and share >= 0 for share in shares)
    if not right or sum(shares) <= 0:
        raise UsageError(
            f"Expected {len(PARTS)} shares that are 0 or more and not all 0, for {', '.join(PARTS)}; "
            f"got {', '.join(map(str, shares)) or 'none'}.",
            fix=f"give shares such as {','.join(map(str, SHARES))}",
        )
    exact = [Fraction(share) for share in shares]  # exact, so that no record falls to rounding errors
    return [share / sum(exact) for share in exact]


def _check_numbers(attribute: Tensor, person: Tensor | None) -> None:
    for numbers in (attribute, *(() if person is None else (person,))):
        if numbers.ndim != 1 or numbers.is_floating_point() or len(numbers) != len(attribute):
            raise UsageError(
                f"Expected a whole number for each of {len(attribute)} records, got {tuple(numbers.shape)} of "
                f"{numbers.dtype}.",
                fix="give one number for each record",
            )
