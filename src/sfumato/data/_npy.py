"""Arrays inside an npz archive, streamed block by block; pickled objects are never loaded."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from sfumato.contracts import Reading
from sfumato.data._arrays import Stack, exactly
from sfumato.data._labels import from_numbers, from_words, number_numbers, number_words
from sfumato.data._reader import check_split
from sfumato.errors import DataError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_LABELS = 512 * 2**20  # bytes, because labels are kept in memory

_PAIRS = {
    "train": (("x_train", "y_train"), ("x", "y"), ("images", "labels")),
    "test": (("x_test", "y_test"),),
}
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)

Split = tuple[Stack, tuple[str, ...], "NDArray[np.int64]"]  # images, classes, labels


def keys(path: Path) -> list[str]:
    """The names of the arrays."""
    with _archive(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if len(set(names)) != len(names):
        raise DataError(
            "Expected each array once in the archive, got one twice.",
            where=path,
            fix="save the archive again with numpy.savez",
        )
    return names


def splits(path: Path) -> dict[str, tuple[str, str]]:
    """Each split with the names of its images and labels."""
    there = set(keys(path))
    found = {
        split: next(pair for pair in pairs if pair[0] in there)
        for split, pairs in _PAIRS.items()
        if any(images in there for images, _ in pairs)
    }
    missing = [label for _, label in found.values() if label not in there]
    if not found or missing:
        raise DataError(
            f"Expected arrays x_train and y_train (x_test, y_test), x and y, or images and labels; "
            f"got {printable(', '.join(sorted(there)))[:200] or 'none'}.",
            where=path,
            fix="save them under these names with numpy.savez",
        )
    return found


def images_key(path: Path) -> str:
    """The name of the array of images, whether or not there are labels."""
    there = keys(path)
    found = [images for pairs in _PAIRS.values() for images, _ in pairs if images in there]
    if not found:
        raise DataError(
            "Expected an array x, images, x_train or x_test; "
            f"got {printable(', '.join(sorted(there)))[:200] or 'none'}.",
            where=path,
            fix="save the images under one of these names with numpy.savez",
        )
    return found[0]


def read(path: Path, reading: Reading, names: tuple[str, ...] | None = None) -> Split:
    """One split's images, classes and labels; the classes are those of all splits together."""
    pairs = splits(path)
    check_split(reading.split, tuple(pairs), where=path)
    labels = {split: _labels(path, pair[1]) for split, pair in pairs.items()}
    if names is None and "classes" in keys(path):
        names = tuple(str(name) for name in _small(path, "classes", kinds="U").ravel())
    own = labels[reading.split]
    worded = {ids.dtype.kind == "U" for ids in labels.values()}
    if len(worded) > 1:
        raise DataError(
            "Expected labels of one kind, got words in one split and numbers in the other.",
            where=path,
            fix="save all labels as whole numbers or all as words",
        )
    if worded == {True}:
        every = (str(word) for ids in labels.values() for word in ids)
        classes = from_words(every, reading.classes or names, where=path)
        numbers = number_words(map(str, own), classes)
    else:
        ids = np.concatenate([ids.astype(np.int64) for ids in labels.values()])
        classes = from_numbers(ids, names, reading.classes, where=path)
        numbers = number_numbers(own.astype(np.int64), names, classes)
    return stack(path, pairs[reading.split][0]), classes, numbers


def stack(path: Path, key: str) -> Stack:
    """The array under that key, from its header alone."""
    with _member(path, key) as (_, shape, dtype):
        pass

    def blocks(rows: int) -> Iterator[NDArray[Any]]:
        row = math.prod(shape[1:]) * dtype.itemsize
        with _member(path, key) as (stream, _, _):
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start)
                block = np.frombuffer(exactly(stream, count * row), dtype=dtype)
                yield block.reshape(count, *shape[1:]).astype(dtype.newbyteorder("="), copy=False)
            stream.read(1)  # reaching the end makes zipfile compare the checksum

    return Stack(place=f"{path.name}: {key}", shape=shape, dtype=dtype.newbyteorder("="), blocks=blocks)


def _labels(path: Path, key: str) -> NDArray[Any]:
    labels = _small(path, key, kinds="uiU")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(
            f"Expected one label for each image, got an array of {' x '.join(map(str, labels.shape)) or 'one value'}.",
            where=f"{path}: {key}",
            fix="save whole-number labels, not one-hot vectors",
        )
    return labels


def _small(path: Path, key: str, *, kinds: str) -> NDArray[Any]:
    with _member(path, key) as (stream, shape, dtype):
        size = _size(shape, dtype)
        if dtype.kind not in kinds or size > LARGEST_LABELS:
            raise DataError(
                f"Expected {'words' if kinds == 'U' else 'whole numbers or words'} of at most "
                f"{LARGEST_LABELS // 2**20} MB, got {size // 2**20} MB of {dtype}.",
                where=f"{path}: {key}",
                fix="save the labels as whole numbers 0, 1, 2, ... or as words",
            )
        return np.frombuffer(exactly(stream, size), dtype=dtype).reshape(shape)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        raise DataError(
            f"Expected an npz archive, got a file that cannot be read as one ({printable(error)[:100]}).",
            where=path,
            fix="save it again with numpy.savez",
        ) from error


@contextmanager
def _member(path: Path, key: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
    with _archive(path) as archive, archive.open(f"{key}.npy") as stream:
        version = npy.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = npy.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = npy.read_array_header_2_0(stream)
        else:
            raise ValueError(f"npy version {version}")
        size, there = _size(shape, dtype), archive.getinfo(f"{key}.npy").file_size - stream.tell()
        problem = ""
        if dtype.hasobject:
            problem = "pickled objects, which can run code"
        elif dtype.kind not in "uifU":
            problem = f"values of {dtype}"
        elif fortran and len(shape) > 1:  # its first axis is spread over the whole file
            problem = "Fortran order"
        elif any(side < 0 for side in shape):
            problem = "a negative side"
        elif size != there:
            problem = "more or fewer bytes than its header says"
        if problem:
            raise DataError(
                f"Expected a plain array of numbers in C order, got {problem}.",
                where=f"{path}: {key}",
                fix="save numpy.ascontiguousarray(images) as uint8, or as floats from 0 to 1",
            )
        yield stream, shape, dtype


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize
