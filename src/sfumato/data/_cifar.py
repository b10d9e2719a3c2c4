"""The binary version of CIFAR: rows of label bytes and 3,072 pixels; the Python version is a pickle and is not read."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.cache import cache_folder
from sfumato.contracts import Reading
from sfumato.data._arrays import Stack
from sfumato.data._labels import from_numbers, number_numbers
from sfumato.data._named import Named
from sfumato.errors import DataError, EnvironmentProblem, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIXELS = 3 * 32 * 32
_LARGEST_MEMBER = 400 * 2**20  # bytes


class NamedCifar(Named):
    """A CIFAR data set: unpacked once from its archive, then streamed from its binary files."""

    inside: ClassVar[str]  # the folder in the archive
    files: ClassVar[dict[str, tuple[str, ...]]]  # split -> its files
    label_bytes: ClassVar[int]  # the class is the last of them

    @classmethod
    def _folder(cls) -> Path | None:
        archive = cls.downloads[0].name
        for place in (*cls.places(), cache_folder()):
            folder = place / cls.inside
            if not folder.is_dir() and (place / archive).is_file():
                unpack(place / archive, folder, wanted=[name for names in cls.files.values() for name in names])
            if folder.is_dir():
                return folder
        return None

    def _read(self, folder: Path, reading: Reading) -> tuple[Stack, tuple[str, ...], NDArray[np.int64]]:
        paths = [folder / name for name in self.files[reading.split]]
        row = self.label_bytes + _PIXELS
        counts = [_rows(path, row) for path in paths]

        def raw(rows: int) -> Iterator[NDArray[np.uint8]]:
            for path, count in zip(paths, counts, strict=True):
                with path.open("rb") as stream:
                    for start in range(0, count, rows):
                        block = np.frombuffer(stream.read(min(rows, count - start) * row), dtype=np.uint8)
                        yield block.reshape(-1, row)

        def blocks(rows: int) -> Iterator[NDArray[np.uint8]]:
            for block in raw(rows):
                yield block[:, self.label_bytes :].reshape(-1, 3, 32, 32)

        numbers = np.concatenate([block[:, self.label_bytes - 1] for block in raw(1000)]).astype(np.int64)
        classes = from_numbers(numbers, self.class_names, reading.classes, where=folder)
        stack = Stack(place=str(folder), shape=(sum(counts), 3, 32, 32), dtype=np.dtype(np.uint8), blocks=blocks)
        return stack, classes, number_numbers(numbers, self.class_names, classes)


def unpack(archive: Path, folder: Path, *, wanted: list[str]) -> None:
    """Take the wanted files out of the archive, by exact name and regular ones only; all of them or none."""
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise EnvironmentProblem(
            f"Expected a cache folder that can be written, got: {error.strerror}.",
            where=folder.parent,
            fix=f"unpack {archive.name} there yourself, or set SFUMATO_CACHE to another folder",
        ) from error
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                base = member.name.rsplit("/", 1)[-1]
                if member.name != f"{folder.name}/{base}" or base not in wanted:
                    continue
                stream = tar.extractfile(member) if member.isreg() and member.size <= _LARGEST_MEMBER else None
                if stream is not None:
                    with (temporary / base).open("wb") as file:
                        shutil.copyfileobj(stream, file)
        missing = [name for name in wanted if not (temporary / name).is_file()]
        if missing:
            raise tarfile.TarError(f"without {missing[0]}")
        if not folder.is_dir():  # another process may have been faster
            temporary.replace(folder)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(
            f"Expected the official archive of CIFAR in its binary version, got one that cannot be read "
            f"({printable(error)[:100]}).",
            where=archive,
            fix="remove it, and download it again",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rows(path: Path, row: int) -> int:
    size = path.stat().st_size if path.is_file() else 0
    if size == 0 or size % row:
        raise DataError(
            f"Expected rows of {row} bytes, got {size} bytes.",
            where=path,
            fix="remove the folder and read again",
        )
    return size // row
