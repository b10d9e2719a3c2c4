"""Bounding and adding up: each record's row is clipped, put on a public lattice and summed as integers."""

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

ROW_BYTES = 1 << 26  # rows of one microbatch, so that memory does not grow with the data
MARGIN = 1e-5  # float32 norms and products err by less than this


class Rows:
    """What each record contributes: a row by its own image and label, and the block of the sum it goes to."""

    of: Callable[[Tensor, Tensor], Tensor]
    l2_bound: float
    blocks: int
    chosen: bool

    def __init__(
        self, of: Callable[[Tensor, Tensor], Tensor], l2_bound: float, *, blocks: int = 1, chosen: bool = False
    ) -> None:
        if not 0 < l2_bound < math.inf:
            raise UsageError(f"Expected a finite l2_bound > 0, got {l2_bound}.")
        self.__setstate__({"of": of, "l2_bound": l2_bound, "blocks": blocks, "chosen": chosen})

    def __getstate__(self) -> dict[str, Any]:
        """Rows travel to workers without what can be made there."""
        return {name: value for name, value in self.__dict__.items() if name != "mapped"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        # one image at a time, by construction: a row cannot depend on its neighbours
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
        blocks = made.long() if self.chosen else labels if self.blocks > 1 else torch.zeros_like(labels)
        values = torch.ones(len(labels), 1) if self.chosen else made.reshape(len(labels), -1).float()
        inside = present & (blocks >= 0) & (blocks < self.blocks)
        on_lattice = bound_rows(values, inside, self.l2_bound, clip=clip)
        if self.blocks == 1:
            total[0] += on_lattice.sum(0, dtype=torch.float64)
        else:
            total.index_add_(0, blocks.masked_fill(~inside, 0), on_lattice.double())


def exact_sum(
    vault: Vault, rows: Rows, included: NDArray[np.bool_], *, clip: bool, microbatch: int | None
) -> NDArray[np.int64]:
    """The sum of the included records' rows on the lattice, flattened; exact, so its order does not matter.

    Guarantee: taking one record away moves the result by at most 2^LATTICE_BITS in L2, whatever the
    record, the microbatch and the other records are; a row that is not finite counts as nothing.
    """
    width = rows.shape(vault.spec).numel() // rows.blocks
    step = microbatch or rows.microbatch(width)
    total = torch.zeros(rows.blocks, width, dtype=torch.float64)
    chosen = np.flatnonzero(included)
    with torch.no_grad():
        for start in range(0, len(chosen), step):
            rows.add_to(total, *vault.batch(chosen[start : start + step]), clip=clip)
    return total.round().to(torch.int64).flatten().numpy()


def bound_rows(rows: Tensor, present: Tensor, l2_bound: float, *, clip: bool) -> Tensor:
    """Rows as integer multiples of l2_bound * 2^-LATTICE_BITS, of norm at most l2_bound; absent rows are zero."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    counts = present & torch.isfinite(norms)
    scale = torch.full_like(norms, 1 / l2_bound)
    if clip:  # rounding may lengthen a row by half a step in every coordinate, so it is cut that much shorter
        longest = 1 - math.sqrt(rows.shape[1]) * 2.0 ** -(LATTICE_BITS + 1) - MARGIN
        scale = torch.minimum(scale * longest, longest / norms)
    rows = torch.where(counts[:, None], rows, 0.0)
    return rows.mul_(torch.where(counts, scale, 0.0)[:, None] * 2.0**LATTICE_BITS).round_()
