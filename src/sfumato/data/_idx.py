"""The idx files of MNIST and similar data sets, plain or gzipped, streamed block by block."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._arrays import MOST_RECORDS, Stack, exactly
from sfumato.data._labels import from_numbers, number_numbers
from sfumato.data._reader import check_split
from sfumato.errors import DataError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PREFIX = {"train": "train", "test": "t10k"}
_IMAGES, _LABELS = 0x803, 0x801  # unsigned bytes in three axes, and in one


def splits(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Each split with its files of images and labels."""
    found = {}
    for split in _PREFIX:
        images, labels = _file(folder, split, "images", 3), _file(folder, split, "labels", 1)
        if images and labels:
            found[split] = (images, labels)
        elif images or labels:
            raise DataError(
                f"Expected a file of images and one of labels, got only {(images or labels or folder).name}.",
                where=folder,
                fix=f"add {_PREFIX[split]}-images-idx3-ubyte and {_PREFIX[split]}-labels-idx1-ubyte",
            )
    return found


def complete(folder: Path) -> bool:
    """Whether both splits are there; half a download is not an error yet."""
    return all(_file(folder, s, "images", 3) and _file(folder, s, "labels", 1) for s in _PREFIX)


def read(
    folder: Path, reading: Reading, names: tuple[str, ...] | None = None
) -> tuple[Stack, tuple[str, ...], NDArray[np.int64]]:
    """One split's images, classes and labels; the classes are those of all splits together."""
    files = splits(folder)
    check_split(reading.split, tuple(files), where=folder)
    labels = {split: _labels(path) for split, (_, path) in files.items()}
    classes = from_numbers(np.concatenate(list(labels.values())), names, reading.classes, where=folder)
    return _stack(files[reading.split][0]), classes, number_numbers(labels[reading.split], names, classes)


def _file(folder: Path, split: str, what: str, axes: int) -> Path | None:
    for prefix in (_PREFIX[split], split):
        for mark in ("-", "."):
            for suffix in ("", ".gz"):
                path = folder / f"{prefix}-{what}{mark}idx{axes}-ubyte{suffix}"
                if path.is_file():
                    return path
    return None


def _stack(path: Path) -> Stack:
    with _opened(path) as stream:
        count, height, width = _header(stream, path, magic=_IMAGES, axes=3)

    def blocks(rows: int) -> Iterator[NDArray[np.uint8]]:
        with _opened(path) as stream:
            _header(stream, path, magic=_IMAGES, axes=3)
            for start in range(0, count, rows):
                block = min(rows, count - start)
                raw = exactly(stream, block * height * width)
                yield np.frombuffer(raw, dtype=np.uint8).reshape(block, height, width)
            _no_more(stream)

    return Stack(place=str(path), shape=(count, height, width), dtype=np.dtype(np.uint8), blocks=blocks)


def _labels(path: Path) -> NDArray[np.int64]:
    with _opened(path) as stream:
        (count,) = _header(stream, path, magic=_LABELS, axes=1)
        raw = exactly(stream, count)
        _no_more(stream)
    return np.frombuffer(raw, dtype=np.uint8).astype(np.int64)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as stream:
            yield cast(IO[bytes], stream)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"Expected an idx file, got one that cannot be read to its end ({printable(error)[:100]}).",
            where=path,
            fix="download it again",
        ) from error


def _header(stream: IO[bytes], path: Path, *, magic: int, axes: int) -> tuple[int, ...]:
    got, *sides = struct.unpack(f">{1 + axes}I", exactly(stream, 4 + 4 * axes))
    if got != magic or sides[0] > MOST_RECORDS:
        raise DataError(
            f"Expected the idx number {magic:#x} and at most {MOST_RECORDS} records, got {got:#x} and {sides[0]}.",
            where=path,
            fix="check that this is the right file, and download it again",
        )
    return tuple(sides)


def _no_more(stream: IO[bytes]) -> None:
    if stream.read(1):
        raise EOFError("longer than its header says")
