"""Bounding and summing: each record's row is clipped, put on a public lattice and summed as integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.values import Spec

if TYPE_CHECKING:
    from sfumato.privacy.vault import Vault

ROW_BYTES = 1 << 26  # of all rows in one microbatch, so that memory does not grow with the data
MARGIN = 1e-5  # relative; the float32 errors of norms and products are smaller than this for every row
BLOCK = 64  # squares added in float32; the relative error of so few terms is at most 64 / 2^24, 2e-6 of a norm
# between these two, squares that underflow are far below MARGIN times the bound
SMALLEST_BOUND = 1e-9
LARGEST_BOUND = 1e9


class Rows:
    """What each record contributes: a row, computed from its own image and label, and the block of the sum it is in.

    `chosen` rows are votes: `of` returns the number of a block, and the record adds 1 to it.
    """

    of: Callable[[Tensor, Tensor], Tensor]
    l2_bound: float
    blocks: int
    chosen: bool

    def __init__(
        self, of: Callable[[Tensor, Tensor], Tensor], l2_bound: float, *, blocks: int = 1, chosen: bool = False
    ) -> None:
        check_bound(l2_bound)
        self.__setstate__({"of": of, "l2_bound": l2_bound, "blocks": blocks, "chosen": chosen})

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to workers: everything but `mapped`, which each worker makes itself."""
        return {name: value for name, value in self.__dict__.items() if name != "mapped"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        # vmap applies `of` to one image at a time, so a row cannot depend on other records
        self.mapped = torch.func.vmap(self.of, randomness="different")

    def shape(self, spec: Spec) -> torch.Size:
        """The shape of an answer, found on a blank image, so that it does not depend on the data."""
        if self.chosen:
            return torch.Size((self.blocks, 1))
        row = self.mapped(torch.zeros(1, *spec.shape), torch.zeros(1, dtype=torch.int64))
        return torch.Size((self.blocks, *row.shape[1:]))

    def microbatch(self, width: int) -> int:
        return max(16, min(4096, ROW_BYTES // (4 * width)))

    def add_to(self, total: Tensor, images: Tensor, labels: Tensor, present: Tensor, *, clip: bool) -> None:
        """Add the rows of a microbatch, as whole numbers on the lattice; total is (blocks, width)."""
        made = self.mapped(images, labels)
        if self.chosen:
            blocks = made.long()
            values = torch.ones(len(labels), 1)
        else:
            blocks = labels if self.blocks > 1 else torch.zeros_like(labels)
            values = made.reshape(len(labels), -1).float()
        inside = present & (blocks >= 0) & (blocks < self.blocks)
        on_lattice = bound_rows(values, inside, self.l2_bound, clip=clip)
        if self.blocks == 1:
            total[0] += on_lattice.sum(0, dtype=torch.float64)
        else:
            total.index_add_(0, blocks.masked_fill(~inside, 0), on_lattice.double())


def exact_sum(
    vault: Vault, rows: Rows, included: NDArray[np.bool_], *, clip: bool, microbatch: int | None
) -> NDArray[np.int64]:
    """The sum of the included records' rows on the lattice, flattened; exact, whatever the order of the records.

    Guarantee: taking one record away moves the result by at most 2^LATTICE_BITS in L2, whatever the
    record, the microbatch and the other records are; a row that is not finite counts as nothing.
    """
    width = rows.shape(vault.spec).numel() // rows.blocks
    step = microbatch or rows.microbatch(width)
    total = torch.zeros(rows.blocks, width, dtype=torch.float64)
    numbers = np.flatnonzero(included)
    with torch.no_grad():
        for start in range(0, len(numbers), step):
            images, labels, present = vault.batch(numbers[start : start + step])
            rows.add_to(total, images, labels, present, clip=clip)
    return total.round().to(torch.int64).flatten().numpy()


def check_bound(l2_bound: float) -> None:
    if not SMALLEST_BOUND <= l2_bound <= LARGEST_BOUND:
        raise UsageError(
            f"Expected an l2_bound from {SMALLEST_BOUND:g} to {LARGEST_BOUND:g}, got {l2_bound}.",
            fix="scale the rows and the bound together",
        )


def row_norms(rows: Tensor) -> Tensor:
    """The L2 norm of each row in float64, to within 2e-6 of itself at any width; inf where squares overflow.

    One float32 sum over a wide row would be too small, by 0.65 % for a hostile row of four million values.
    """
    in_blocks = rows.shape[1] // BLOCK * BLOCK  # values that fill whole blocks
    blocks = torch.linalg.vector_norm(rows[:, :in_blocks].reshape(len(rows), in_blocks // BLOCK, BLOCK), dim=2)
    rest = torch.linalg.vector_norm(rows[:, in_blocks:], dim=1)
    norms: Tensor = (blocks.double().square().sum(1) + rest.double().square()).sqrt()
    return norms


def bound_rows(rows: Tensor, present: Tensor, l2_bound: float, *, clip: bool) -> Tensor:
    """Rows as integer multiples of l2_bound * 2^-LATTICE_BITS, of norm at most l2_bound; absent rows are zero."""
    norms = row_norms(rows)
    counts = present & torch.isfinite(norms)
    scale = torch.full_like(norms, 1 / l2_bound)
    if clip:  # rounding may lengthen a row by half a step in every coordinate, so the bound is reduced by that much
        longest = 1 - math.sqrt(rows.shape[1]) * 2.0 ** -(LATTICE_BITS + 1) - MARGIN
        scale = torch.minimum(scale * longest, longest / norms)
    rows = torch.where(counts[:, None], rows, 0.0)
    factors = torch.where(counts, scale, 0.0).float()[:, None] * 2.0**LATTICE_BITS
    return rows.mul_(factors).round_()
