"""Bounding and adding up: each record's row is clipped, put on a public lattice and summed as integers."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import DataError, EnvironmentProblem, UsageError
from sfumato.privacy.noise import LATTICE_BITS, Noise
from sfumato.privacy.tape import Tape
from sfumato.values import Source

_ROW_BYTES = 1 << 26  # rows of one microbatch, so that memory does not grow with the data
_MARGIN = 1e-5  # float32 norms and products err by less than this


class Vault:
    """The data itself: memory-mapped pixels, labels, and what answers are made with.

    Guarantee: records are read from a private working copy, never altered, and gone when it is closed.
    """

    def __init__(self, source: Source, *, folder: Path | None, noise: Noise, tape: Tape) -> None:
        self.spec, self.closed, self.noise, self.tape = source.spec, False, noise, tape
        self._file = None if folder is None else folder / "sealed.pixels"
        self._mapped: mmap.mmap | None = None
        shape = (self.spec.count, *self.spec.shape)
        self.pixels: NDArray[np.uint8] = np.zeros(shape if self._file is None else 0, np.uint8)
        self.labels = np.full(self.spec.count, -1, np.int64)
        try:
            self._fill(source)
        except BaseException:
            self.close()  # half a working copy must not stay behind
            raise
        if self._file is not None and self.spec.count:
            with self._file.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.pixels = np.frombuffer(self._mapped, np.uint8).reshape(shape)
        self.present = (self.labels >= 0) & (self.labels < len(self.spec.classes))

    def _fill(self, source: Source) -> None:
        done = 0
        with self._writer() as write:
            for pixels, labels in source.chunks():
                if pixels.shape[1:] != self.spec.shape or done + len(pixels) > self.spec.count:
                    raise DataError("The data changed while it was read.", where=source.name, fix="run again")
                self.labels[done : done + len(pixels)] = labels
                write(pixels, done)
                done += len(pixels)
        if done != self.spec.count:
            raise DataError(f"Expected {self.spec.count} records, got {done}.", where=source.name, fix="run again")

    @contextlib.contextmanager
    def _writer(self) -> Any:
        if self._file is None:
            yield lambda pixels, start: self.pixels.__setitem__(slice(start, start + len(pixels)), pixels)
            return
        try:  # plain writes, because a full disk kills a process that writes through a memory map
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                yield lambda pixels, start: file.write(np.ascontiguousarray(pixels).data)
        except OSError as error:
            raise EnvironmentProblem(
                f"The working copy of the data could not be written ({error.strerror}).",
                where=self._file,
                fix=f"free {math.ceil(self.spec.count * self.spec.pixels / 1e6)} MB and run the same command again",
            ) from error

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels in [0, 1], labels and presence of the chosen records; an absent record is all zero."""
        present = torch.from_numpy(self.present[chosen])
        pixels = torch.from_numpy(np.ascontiguousarray(self.pixels[chosen])).float().div_(255)
        pixels[~present] = 0
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)  # or the pages we have read would count as our memory
        return pixels, torch.from_numpy(self.labels[chosen]).masked_fill(~present, 0), present

    def close(self) -> None:
        self.closed = True
        self.pixels, self.labels, self.present = (np.zeros(0, np.uint8),) * 3  # type: ignore[assignment]
        self._mapped = None
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class Rows:
    """What each record contributes: a row by its own image and label, and the block of the sum it goes to."""

    def __init__(
        self, of: Callable[[Tensor, Tensor], Tensor], l2_bound: float, *, blocks: int = 1, chosen: bool = False
    ) -> None:
        if not 0 < l2_bound < math.inf:
            raise UsageError(f"Expected a finite l2_bound > 0, got {l2_bound}.")
        self.of, self.l2_bound, self.blocks, self.chosen = of, l2_bound, blocks, chosen
        # one image at a time, by construction: a row cannot depend on its neighbours
        self.mapped = torch.func.vmap(of, randomness="different")

    def shape(self, spec: Any) -> torch.Size:
        """The shape of an answer, found on a blank image, so that it does not depend on the data."""
        if self.chosen:
            return torch.Size((self.blocks, 1))
        row = self.mapped(torch.zeros(1, *spec.shape), torch.zeros(1, dtype=torch.int64))
        return torch.Size((self.blocks, *row.shape[1:]))


def exact_sum(
    vault: Vault, rows: Rows, included: NDArray[np.bool_], *, clip: bool, microbatch: int | None
) -> NDArray[np.int64]:
    """The sum of the included records' rows on the lattice, flattened; exact, so its order does not matter.

    Guarantee: taking one record away moves the result by at most 2^LATTICE_BITS in L2, whatever the
    record, the microbatch and the other records are; a row that is not finite counts as nothing.
    """
    width = rows.shape(vault.spec).numel() // rows.blocks
    step = microbatch or max(16, min(4096, _ROW_BYTES // (4 * width)))
    total = torch.zeros(rows.blocks, width, dtype=torch.float64)
    chosen = np.flatnonzero(included)
    with torch.no_grad():
        for start in range(0, len(chosen), step):
            pixels, labels, present = vault.batch(chosen[start : start + step])
            made = rows.mapped(pixels, labels)
            blocks = made.long() if rows.chosen else labels if rows.blocks > 1 else torch.zeros_like(labels)
            values = torch.ones(len(labels), 1) if rows.chosen else made.reshape(len(labels), width).float()
            inside = present & (blocks >= 0) & (blocks < rows.blocks)
            on_lattice = bound_rows(values, inside, rows.l2_bound, clip=clip)
            if rows.blocks == 1:
                total[0] += on_lattice.sum(0, dtype=torch.float64)
            else:
                total.index_add_(0, blocks.masked_fill(~inside, 0), on_lattice.double())
    return total.to(torch.int64).flatten().numpy()


def bound_rows(rows: Tensor, present: Tensor, l2_bound: float, *, clip: bool) -> Tensor:
    """Rows as integer multiples of l2_bound * 2^-LATTICE_BITS, of norm at most l2_bound; absent rows are zero."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    counts = present & torch.isfinite(norms)
    scale = torch.full_like(norms, 1 / l2_bound)
    if clip:  # rounding may lengthen a row by half a step in every coordinate, so it is cut that much shorter
        longest = 1 - math.sqrt(rows.shape[1]) * 2.0 ** -(LATTICE_BITS + 1) - _MARGIN
        scale = torch.minimum(scale * longest, longest / norms)
    rows = torch.where(counts[:, None], rows, 0.0)
    return rows.mul_(torch.where(counts, scale, 0.0)[:, None] * 2.0**LATTICE_BITS).round_()
