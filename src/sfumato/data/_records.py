"""Records that are encoded images: every header is read first, then pixels chunk by chunk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._decode import Header, Unreadable, header, pixels
from sfumato.data._labels import ABSENT
from sfumato.data._reader import Reader, check_reading, check_side, refuse_bad, rows_per_chunk
from sfumato.data._tree import Tree
from sfumato.errors import DataError, printable
from sfumato.progress import track
from sfumato.values import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Opener = Callable[[], BinaryIO]


class ImageRecords(Reader):
    """A split of encoded images; a bad one stops the reading, or stays in its place as an absent record."""

    def _settle(
        self, where: str, reading: Reading, *, name: str, classes: tuple[str, ...], labels: NDArray[np.int64]
    ) -> None:
        """Read every header, and fix the public facts."""
        check_reading(reading)
        self._where, self._reading, self._name, self._labels = where, reading, name, labels
        if len(labels) == 0:
            raise DataError(
                f"Expected images in the {reading.split} split, got none.",
                where=where,
                fix="put the images there, or name another folder",
            )
        headers = self._preflight()
        if not reading.skip_bad:
            refuse_bad(self.bad, len(labels), where=where)
        channels, height, width = self._shape(headers)
        self._spec = Spec(len(labels), channels, height, width, classes)

    @abstractmethod
    def _streams(self) -> Iterator[tuple[str, Opener]]:
        """Each record's name, and how to open its bytes; always in the same order."""

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        rows = rows_per_chunk(self._spec.pixels)
        block = np.zeros((rows, *self._spec.shape), dtype=np.uint8)  # (b, c, h, w)
        labels = np.full(rows, ABSENT, dtype=np.int64)
        filled = 0
        for number, (name, opener) in enumerate(self._streams()):
            image = self._pixels(number, name, opener)
            if image is not None:
                block[filled], labels[filled] = image, self._labels[number]
            filled += 1
            if filled == rows:
                yield block, labels
                block, labels = np.zeros_like(block), np.full(rows, ABSENT, dtype=np.int64)
                filled = 0
        if filled:
            yield block[:filled], labels[:filled]
        if not self._reading.skip_bad:  # at the end, so that one run names them all
            refuse_bad(self.bad, self._spec.count, where=self._where)

    def _preflight(self) -> list[tuple[str, Header]]:
        self.bad, self._bad_numbers = [], set[int]()
        good = []
        streams = track(self._streams(), what="reading image headers", total=len(self._labels))
        for number, (name, opener) in enumerate(streams):
            try:
                with opener() as stream:
                    good.append((name, header(stream)))
            except Unreadable as reason:
                self._mark(number, name, reason)
        return good

    def _shape(self, headers: Sequence[tuple[str, Header]]) -> tuple[int, int, int]:
        if not headers:
            raise DataError(
                f"Expected at least one readable image, got {len(self.bad)} bad ones.",
                where=self._where,
                fix="check that these are PNG, JPEG, WebP, BMP or TIFF images",
            )
        name, first = headers[0]
        other = next((h for h in headers if (h[1].width, h[1].height) != (first.width, first.height)), None)
        if other is not None and self._reading.size is None:
            raise DataError(
                f"Expected images of one size, got {first.width} x {first.height} ({printable(name)[:150]}) and "
                f"{other[1].width} x {other[1].height} ({printable(other[0])[:150]}).",
                where=self._where,
                fix="resize them while reading, for example with --size 64",
            )
        height, width = check_side(first.height, first.width, self._reading.size, where=self._where)
        grey = all(h.grey for _, h in headers) if self._reading.mode is None else self._reading.mode == "grey"
        return (1 if grey else 3), height, width

    def _pixels(self, number: int, name: str, opener: Opener) -> NDArray[np.uint8] | None:
        if number in self._bad_numbers:
            return None
        try:
            with opener() as stream:
                image = pixels(stream, channels=self._spec.channels, size=self._reading.size)
            if image.shape != self._spec.shape:
                raise Unreadable("a size other than its header's, or changed while it was read")
        except Unreadable as reason:
            self._mark(number, name, reason)
            return None
        return image

    def _mark(self, number: int, name: str, reason: Unreadable) -> None:
        self.bad.append((name, str(reason)))
        self._bad_numbers.add(number)


class TreeRecords(ImageRecords):
    """Encoded images that are files of a folder or an archive."""

    _tree: Tree
    _names: Sequence[str]
    _reasons: dict[str, str]  # files known to be bad before they are opened

    def _streams(self) -> Iterator[tuple[str, Opener]]:
        for name in self._names:
            yield name, lambda name=name: self._open(name)  # type: ignore[misc]

    def called(self, number: int) -> str:
        """The file of a record."""
        return self._names[number]

    def _open(self, name: str) -> BinaryIO:
        if name in self._reasons:
            raise Unreadable(self._reasons[name])
        return self._tree.open(name)
