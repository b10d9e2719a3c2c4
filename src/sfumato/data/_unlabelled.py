"""Images whose labels, if there are any, are not asked for: what a classifier is given to label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.contracts import Reading
from sfumato.data import _npy
from sfumato.data._archive import ZipTree
from sfumato.data._arrays import ArrayRecords, check_stack
from sfumato.data._layout import layout
from sfumato.data._records import TreeRecords
from sfumato.data._tree import BESIDE_IMAGES, IMAGES, DiskTree
from sfumato.errors import DataError
from sfumato.values import Source, Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

# layouts of image files; their labels are in other files, or in the names of folders or files
_FILES = ("folder", "table", "celeba", "fairface", "utkface")


class ImageFiles(TreeRecords):
    """The image files of a folder or zip archive, wherever they lie in it, or one image file.

    Text and tables beside them are no images; every other file must be one. All have the same label.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) in _FILES or _one_image(where)

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train",)

    def __init__(self, where: str, reading: Reading) -> None:
        path = Path(where)
        if _one_image(where):
            self._tree, names = DiskTree(path.resolve().parent), [path.resolve().name]
        else:
            self._tree = DiskTree(path) if path.is_dir() else ZipTree(path)
            names = [name for name in self._tree.walk() if not name.casefold().endswith(BESIDE_IMAGES)]
        self._names = names
        self._reasons = {}
        if not self._names:
            raise DataError(
                "Expected image files in it or in its sub-folders, got none.",
                where=where,
                fix="name a folder of PNG, JPEG, WebP, BMP or TIFF images",
            )
        labels = np.zeros(len(self._names), dtype=np.int64)
        self._settle(where, reading, name=path.resolve().stem, classes=("image",), labels=labels)

    @property
    def names(self) -> Sequence[str]:
        """Of the files, in the order of the records."""
        return self._names


class ImageArray(ArrayRecords):
    """The images of an npz archive; labels may be there or not. All have the same label."""

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "npz"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train",)

    def __init__(self, where: str, reading: Reading) -> None:
        path = Path(where)
        stack = _npy.stack(path, _npy.images_key(path))
        check_stack(stack)
        labels = np.zeros(stack.count, dtype=np.int64)
        self._settle(where, reading, name=path.stem, stack=stack, classes=("image",), labels=labels)


def _one_image(where: str) -> bool:
    return where.casefold().endswith(IMAGES) and Path(where).is_file()


class Unlabelled:
    """An opened data set without its labels: names and pixels, in chunks that fit in memory."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def spec(self) -> Spec:
        return self._source.spec

    @property
    def bad(self) -> list[tuple[str, str]]:
        """Records that were left out because they cannot be read, and why; complete after the last chunk."""
        return list(getattr(self._source, "bad", ()))

    def chunks(self) -> Iterator[tuple[list[str], NDArray[np.uint8]]]:
        start = 0
        for block, labels in self._source.chunks():
            there = np.flatnonzero((labels >= 0) & (labels < len(self.spec.classes)))
            yield [self._name(start + int(row)) for row in there], block[there]
            start += len(labels)

    def _name(self, number: int) -> str:
        """Of a record: its file, or its place where it has no file."""
        if isinstance(self._source, ImageFiles):
            return self._source.names[number]
        return f"{self._source.name}[{number}]"
