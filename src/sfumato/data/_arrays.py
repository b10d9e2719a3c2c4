"""Images that lie in one large array: the rule for shapes and values, and pixels block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._labels import ABSENT
from sfumato.data._reader import Reader, check_reading, check_side, refuse_bad, rows_per_chunk
from sfumato.errors import DataError
from sfumato.values import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_ROW = 64 * 2**20  # bytes of one record
MOST_RECORDS = 100_000_000

RULE = "N x H x W, N x H x W x C or N x C x H x W with 1 or 3 channels, uint8, or floats from 0 to 1"


@dataclass(frozen=True, slots=True)
class Stack:
    """An array of images that need not fit in memory."""

    place: str  # what to call it in an error
    shape: tuple[int, ...]  # (n, h, w), (n, h, w, c) or (n, c, h, w)
    dtype: np.dtype[Any]
    blocks: Callable[[int], Iterator[NDArray[Any]]]  # rows in a block -> blocks of that many rows

    @property
    def count(self) -> int:
        return self.shape[0]

    @property
    def channels_last(self) -> bool:
        """The rule for four axes: channels are last where the last axis is 1 or 3, else they are second."""
        return len(self.shape) == 4 and self.shape[3] in (1, 3)

    @property
    def image(self) -> tuple[int, int, int]:
        """(c, h, w) of one image."""
        if len(self.shape) == 3:
            return (1, self.shape[1], self.shape[2])
        _, a, b, c = self.shape
        return (c, a, b) if self.channels_last else (a, b, c)


def check_stack(stack: Stack) -> None:
    """Refuse what cannot be images, from the array's header alone."""
    shape, kind = stack.shape, stack.dtype
    got = f"{' x '.join(map(str, shape)) or 'a single value'} of {kind}"
    right = len(shape) in (3, 4) and min(shape[1:], default=0) > 0
    if right and len(shape) == 4:
        right = shape[3] in (1, 3) or shape[1] in (1, 3)
    if not right or kind.kind not in "uif":
        raise DataError(f"Expected {RULE}; got {got}.", where=stack.place, fix="save the images as such an array")
    if stack.count == 0:
        raise DataError("Expected images, got an array of none.", where=stack.place, fix="save at least one image")
    if stack.count > MOST_RECORDS or math.prod(shape[1:]) * kind.itemsize > LARGEST_ROW:
        raise DataError(
            f"Expected up to {MOST_RECORDS} images of up to {LARGEST_ROW // 2**20} MB, got {got}.",
            where=stack.place,
            fix="make the images smaller",
        )


class ArrayRecords(Reader):
    """A split that is one array; a record with values outside the rule is bad."""

    def _settle(
        self,
        where: str,
        reading: Reading,
        *,
        name: str,
        stack: Stack,
        classes: tuple[str, ...],
        labels: NDArray[np.int64],
    ) -> None:
        """Check the header and fix the public facts; values are checked while they are read."""
        check_reading(reading)
        check_stack(stack)
        if len(labels) != stack.count:
            raise DataError(
                f"Expected one label for each of {stack.count} images, got {len(labels)}.",
                where=stack.place,
                fix="save images and labels together again",
            )
        channels, height, width = stack.image
        if reading.mode is not None:
            channels = 1 if reading.mode == "grey" else 3
        height, width = check_side(height, width, reading.size, where=where)
        self._where, self._reading, self._name = where, reading, name
        self._stack, self._labels, self.bad = stack, labels, []
        self._spec = Spec(stack.count, channels, height, width, classes)

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        stack, start = self._stack, 0
        bad: list[tuple[str, str]] = []
        wide = math.prod(stack.shape[1:]) * max(8, stack.dtype.itemsize)  # checking goes through wider numbers
        for raw in stack.blocks(rows_per_chunk(max(wide, self._spec.pixels))):
            labels = self._labels[start : start + len(raw)].copy()
            block, good = eight_bit(raw)
            for row in np.flatnonzero(~good):
                bad.append((f"{stack.place}[{start + int(row)}]", _reason(raw[row])))
            block[~good], labels[~good] = 0, ABSENT
            start += len(raw)
            yield self._fitted(block), labels
        self.bad = bad
        if not self._reading.skip_bad:
            refuse_bad(bad, stack.count, where=self._where)

    def _fitted(self, block: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Raw axes to (b, c, h, w) of the asked size and colour."""
        if block.ndim == 3:
            block = block[:, None]
        elif self._stack.channels_last:
            block = block.transpose(0, 3, 1, 2)
        if block.shape[1:] == self._spec.shape:
            return np.ascontiguousarray(block)
        from PIL import Image

        from sfumato.data import _decode

        fitted = np.empty((len(block), *self._spec.shape), dtype=np.uint8)
        for k, image in enumerate(block):
            flat = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
            picture = _decode.eight_bit(Image.fromarray(np.ascontiguousarray(flat)), channels=self._spec.channels)
            fitted[k] = _decode.as_array(_decode.squared(picture, self._reading.size))
        return fitted


def eight_bit(raw: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Pixels as uint8, and for each row whether all of it follows the rule."""
    if raw.dtype == np.uint8:
        return raw.copy(), np.ones(len(raw), dtype=np.bool_)
    axes = tuple(range(1, raw.ndim))
    if raw.dtype.kind == "f":
        wide = raw.astype(np.float64)
        good = np.asarray(((wide >= 0) & (wide <= 1)).all(axis=axes))  # NaN is neither
        wide[~good] = 0
        wide *= 255  # in place: this block is the largest thing in memory
        return np.rint(wide, out=wide).astype(np.uint8), good
    good = np.asarray(((raw >= 0) & (raw <= 255)).all(axis=axes))
    return np.where(good.reshape(-1, *(1,) * len(axes)), raw, 0).astype(np.uint8), good


def _reason(row: NDArray[Any]) -> str:
    if row.dtype.kind == "f":
        if not np.isfinite(row).all():
            return "NaN or infinity, expected floats from 0 to 1"
        return f"values from {row.min():g} to {row.max():g}, expected floats from 0 to 1"
    return f"values from {row.min()} to {row.max()}, expected 0 to 255"


def exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, or EOFError; read in steps, because a header may promise more than there is."""
    parts, left = [], size
    while left:
        part = stream.read(min(left, 2**22))
        if not part:
            raise EOFError("shorter than its header says")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
