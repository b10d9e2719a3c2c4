"""The private records, with the noise and the tape that answers need; only this package can reach them."""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import DataError, EnvironmentProblem, UsageError
from sfumato.privacy.noise import Noise
from sfumato.privacy.rows import Rows, exact_sum
from sfumato.privacy.tape import Tape
from sfumato.progress import track
from sfumato.values import Source, Spec

Array = NDArray[Any]
_STEP = 512  # records at a time when features are computed
_TOGETHER = 64  # of these, in one call of the map
_TOUCHED = 1 << 26  # bytes of a file that may stay mapped; reading a page again is slow


class Records:
    """Equal-sized records, in memory or in a private file that is read through a memory map."""

    def __init__(self, shape: tuple[int, ...], kind: type, *, file: Path | None) -> None:
        self._file = file
        self._mapped: mmap.mmap | None = None
        self._touched = 0
        self._shape = shape
        self._kind = np.dtype(kind)
        self.values: Array = np.zeros(shape if file is None else 0, kind)

    @contextlib.contextmanager
    def writer(self) -> Iterator[Callable[[Array, int], Any]]:
        """A function that writes records, in order, at a start index; when the context ends they can be read."""
        if self._file is None:
            yield lambda values, start: self.values.__setitem__(slice(start, start + len(values)), values)
            return
        try:
            with _nameless(self._file) as file:
                # plain writes, because a full disk kills a process that writes through a memory map
                yield lambda values, start: file.write(np.ascontiguousarray(values, self._kind).data)
                file.flush()
                if self._shape[0]:
                    self._mapped = mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self.values = np.frombuffer(mapped, self._kind).reshape(self._shape)
        except OSError as error:
            size = math.prod(self._shape) * self._kind.itemsize
            raise EnvironmentProblem(
                f"The working copy of the data could not be written ({error.strerror}).",
                where=self._file,
                fix=f"free {math.ceil(size / 1e6)} MB and run the same command again",
            ) from error

    def take(self, chosen: NDArray[np.int64]) -> Tensor:
        taken = torch.from_numpy(np.ascontiguousarray(self.values[chosen]))
        self._touched += len(chosen) * max(mmap.PAGESIZE, taken.nbytes // max(len(chosen), 1))
        if self._mapped is not None and self._touched > _TOUCHED:
            self._mapped.madvise(mmap.MADV_DONTNEED)  # otherwise pages that were read count as this process's memory
            self._touched = 0
        return taken

    def close(self) -> None:
        self.values = np.zeros(0, self._kind)
        self._mapped = None


def _nameless(path: Path) -> io.BufferedRandom:
    """A new file without a name, so that the system deletes it when this process ends, however it ends."""
    path.unlink(missing_ok=True)  # older versions left a named file behind when they were killed
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    path.unlink()
    return os.fdopen(handle, "w+b")


class Vault:
    """Pixels and labels of one data set.

    Guarantee: records are read from a private working copy, never altered, and gone when it is closed or when the
    process is killed.
    """

    empty: ClassVar[bool] = False  # True without records: then only recorded answers can be given
    derived: bool = False  # features, not images

    def __init__(self, source: Source, *, folder: Path | None, noise: Noise, tape: Tape) -> None:
        self.spec = source.spec
        self.closed = False
        self.noise = noise
        self.tape = tape
        self.folder = folder
        self._derived: list[Vault] = []
        self.labels = np.full(self.spec.count, -1, np.int64)
        shape = (self.spec.count, *self.spec.shape)
        self._records = Records(shape, np.uint8, file=None if folder is None else folder / "sealed.pixels")
        try:
            self._fill(source)
        except BaseException:
            self.close()  # an incomplete working copy must not stay on disk
            raise
        self.present = (self.labels >= 0) & (self.labels < len(self.spec.classes))

    def _fill(self, source: Source) -> None:
        done = 0
        with self._records.writer() as write:
            for pixels, labels in source.chunks():
                if pixels.shape[1:] != self.spec.shape or done + len(pixels) > self.spec.count:
                    raise DataError("The data changed while it was read.", where=source.name, fix="run again")
                self.labels[done : done + len(pixels)] = labels
                write(pixels, done)
                done += len(pixels)
            if done != self.spec.count:
                raise DataError(f"Expected {self.spec.count} records, got {done}.", where=source.name, fix="run again")

    @property
    def pixels(self) -> Array:
        return self._records.values

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels in [0, 1], labels and presence of the chosen records; an absent record is all zero."""
        present = torch.from_numpy(self.present[chosen])
        pixels = self._records.take(chosen).float().div_(255)
        pixels[~present] = 0
        return pixels, torch.from_numpy(self.labels[chosen]).masked_fill(~present, 0), present

    def expect_records(self) -> None:
        """Raises where there are none, and only recorded answers can be given."""

    def total(
        self, rows: Rows, included: NDArray[np.bool_], *, clip: bool, microbatch: int | None
    ) -> NDArray[np.int64]:
        """The exact sum of the included records' rows; noise is for the caller to add."""
        return exact_sum(self, rows, included, clip=clip, microbatch=microbatch)

    def derive(self, feature: Callable[[Tensor], Tensor]) -> Vault:
        derived = DerivedVault(self, feature, len(self._derived))
        self._derived.append(derived)
        return derived

    def close(self) -> None:
        self.closed = True
        self.labels = np.zeros(0, np.int64)
        self.present = np.zeros(0, bool)
        self._records.close()
        for derived in self._derived:
            derived.close()


def spec_of_features(spec: Spec, mapped: Callable[[Tensor], Tensor]) -> Spec:
    """The spec of the features, found on a blank image, so that it does not depend on the data."""
    with torch.no_grad():
        shape = mapped(torch.zeros(1, *spec.shape)).shape[1:]
    if len(shape) != 3:
        raise UsageError(f"Expected features of one image as (channels, height, width), got {tuple(shape)}.")
    return Spec(spec.count, *shape, spec.classes)


class DerivedVault(Vault):
    """Features of the same records by a public map of one image; computed when first needed, then kept.

    Guarantee: a derived record depends on its own image alone, and is gone when the vault is closed.
    """

    derived = True

    def __init__(self, parent: Vault, feature: Callable[[Tensor], Tensor], number: int) -> None:
        # vmap applies the map to one image at a time, as for rows; feature maps of more would not fit the cache
        self._map = torch.func.vmap(feature, chunk_size=_TOGETHER)
        self.spec = spec_of_features(parent.spec, self._map)
        self.closed = False
        self.noise = parent.noise
        self.tape = parent.tape
        self.folder = parent.folder
        self._derived = []
        self._parent = parent
        self._ready = False
        self.labels = parent.labels
        self.present = parent.present
        file = None if parent.folder is None else parent.folder / f"sealed.features{number}"
        # half precision: half the memory to read in every round
        self._records = Records((parent.spec.count, *self.spec.shape), np.float16, file=file)

    def _compute(self) -> None:
        with self._records.writer() as write, torch.no_grad():
            starts = range(0, self.spec.count, _STEP)
            for start in track(starts, what="features", total=len(starts)):
                chosen = np.arange(start, min(start + _STEP, self.spec.count))
                write(self._map(self._parent.batch(chosen)[0]).half().numpy(), start)
        self._ready = True

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        """Features, labels and presence of the chosen records."""
        if not self._ready:
            self._compute()
        present = torch.from_numpy(self.present[chosen])
        labels = torch.from_numpy(self.labels[chosen]).masked_fill(~present, 0)
        return self._records.take(chosen).float(), labels, present
