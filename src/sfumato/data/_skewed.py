"""CIFAR with colour that goes with the class (Wang et al. 2020): which images become grey, and the pairs to test on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato.contracts import Reading
from sfumato.data import _npy
from sfumato.data._cifar import NamedCifar
from sfumato.data._labels import ABSENT, check_classes, number_words
from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 42
COLUMN = "colour"  # the label that names the groups
GROUPS = ("colour", "grey")
_DEFAULT = 95
_PERCENTS = {"": _DEFAULT, "-95": 95, "-75": 75}  # what follows the name -> images of a class with its usual colour


class Skewed(NamedCifar):
    """A CIFAR data set of which most images of a class are in colour, or most are grey.

    It derives from what the CIFAR reader of the same classes reads, or after a colon from an npz archive:
    `cifar10s`, `cifar10s-75`, `cifar10s:file.npz`. Of n training images of a class, round(p n) have the usual colour
    of the class; which ones follows from their positions by a seed. In the test split every image comes twice, in
    colour and then in grey. The label `colour` gives the groups colour and grey instead of the classes
    (`--group colour` for judges).

    Whether a record is grey depends on the others of its class, so a guarantee is one for records of the set as it is
    built here, not of the photographs that it is built from.
    """

    known_as: ClassVar[str]

    @classmethod
    def recognises(cls, where: str) -> bool:
        return cls._percent(where) is not None

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        archive = _archive(where)
        return ("train", "test") if archive is None else tuple(_npy.splits(archive))

    def __init__(self, where: str, reading: Reading) -> None:
        _check_choices(reading, where)
        percent, archive = self._percent(where) or _DEFAULT, _archive(where)
        plain = replace(reading, label=None, classes=None, mode="colour")
        found = self._found(plain) if archive is None else _npy.read(archive, plain, self.class_names)
        stack, _, numbers = found
        name = self.known_as if percent == _DEFAULT else f"{self.known_as}-{percent}"
        self._settle(where, plain, name=name, stack=stack, classes=self.class_names, labels=numbers)
        if stack.image[0] != 3:
            raise DataError(
                f"Expected images in colour, got {stack.image[0]} channel.",
                where=stack.place,
                fix="give images with three channels: grey ones have no colour to lose",
            )
        self._grey = grey_views(numbers, split=reading.split, classes=len(self.class_names), percent=percent)
        self._by_group = reading.label == COLUMN
        names = GROUPS if self._by_group else self.class_names
        classes = check_classes(reading.classes or names, where=where)
        self._places = number_words(names, classes)
        self._spec = replace(self._spec, count=self._grey.size, classes=classes)

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        start, views = 0, self._grey.shape[1]
        for block, numbers in super().chunks():
            grey = self._grey[start : start + len(block)].ravel()
            start += len(block)
            pixels, known = block.repeat(views, axis=0), numbers.repeat(views) != ABSENT
            pixels[grey] = in_grey(pixels[grey])
            values = grey.astype(np.int64) if self._by_group else numbers.repeat(views)
            yield pixels, np.where(known, self._places[values], ABSENT).astype(np.int64)

    @classmethod
    def _percent(cls, where: str) -> int | None:
        name = where.partition(":")[0].replace("_", "-")
        return _PERCENTS.get(name.removeprefix(cls.known_as)) if name.startswith(cls.known_as) else None


def grey_views(numbers: NDArray[np.int64], *, split: str, classes: int, percent: int) -> NDArray[np.bool_]:
    """Which views of each image are grey, (n, views): one view of a training image, both views of a test image.

    Classes with odd numbers are mostly in colour and those with even numbers mostly grey. One seeded order of all
    positions serves every class, so that the choice in a class does not depend on where other classes begin.
    """
    if split == "test":
        return np.tile(np.array([False, True]), (len(numbers), 1))
    order = np.random.default_rng(SEED).permutation(len(numbers))
    grey = np.zeros((len(numbers), 1), dtype=np.bool_)
    for number in range(classes):
        mine = order[numbers[order] == number]
        usual = round(percent / 100 * len(mine))
        grey[mine[usual:] if number % 2 else mine[:usual]] = True
    return grey


def in_grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (n, 3, h, w) as Pillow converts them to mode L, the same in all three channels."""
    from PIL import Image

    count, _, height, width = pixels.shape
    if count == 0:
        return pixels
    tall = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).reshape(count * height, width, 3)  # one call for all
    luma = np.asarray(Image.fromarray(tall).convert("L")).reshape(count, 1, height, width)
    return luma.repeat(3, axis=1)


def _archive(where: str) -> Path | None:
    """The npz archive that is named after the colon, if there is one."""
    _, colon, path = where.partition(":")
    if not colon:
        return None
    if "\0" in path or not Path(path).is_file():
        raise UsageError(
            f"Expected an npz archive after the colon, got '{printable(path)[:150]}', where there is none.",
            where=where,
            fix="check the path, or leave the colon out to read the whole data set from the cache folder",
        )
    return Path(path)


def _check_choices(reading: Reading, where: str) -> None:
    if reading.label not in (None, COLUMN):
        raise UsageError(
            f"Expected the label '{COLUMN}' or none, got '{printable(reading.label)}'.",
            where=where,
            fix=f"leave --label out for the classes; the groups are --group {COLUMN}",
        )
    if reading.mode == "grey":
        raise UsageError(
            "Expected images in colour, got --mode grey, in which the two groups are the same.",
            where=where,
            fix="leave --mode out, or read the plain data set in grey",
        )
