"""CelebA (Liu et al. 2015) in its published layout: a folder `img_align_celeba`, a list of attributes, a partition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._decode import Unreadable
from sfumato.data._download import put_there
from sfumato.data._labels import check_classes, number_words
from sfumato.data._reader import HasAttributes, check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import DiskTree
from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "celeba"
TARGET = "Smiling"
SITE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
IMAGES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
_PARTS = {"train": "0", "test": "2"}  # 1 is validation
_LARGEST_LIST = 256 * 2**20  # bytes

Lines = list[tuple[int, list[str]]]  # a line's number and its cells


class Celeba(TreeRecords, HasAttributes):
    """Faces with forty attributes; the label is one of them, `Smiling` unless another is named.

    The classes of an attribute are `not Smiling` and `Smiling`. A protected attribute is read as every label is, so
    judges get it by its name: `--group Male`. The split is the official one: 0 is train, 2 is test, and the images of
    the validation part are left out. The lists may also be in `Anno` and `Eval` and the images in `Img`, as they are
    published. It is found by the path of its folder, or by the name `celeba` in the cache folder; it is not
    downloaded, because its terms have to be agreed to.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return where == NAME or published(where)

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return tuple(_PARTS)

    @classmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        root = _root(where)
        place = _place(root, ATTRIBUTES, "Anno")
        return tuple(_header(_lines(DiskTree(root), place), root / place)[1])

    def __init__(self, where: str, reading: Reading) -> None:
        check_split(reading.split, self.splits(where), where=where)
        root = _root(where)
        self._tree, self._reasons = DiskTree(root), {}
        attributes, partition = _place(root, ATTRIBUTES, "Anno"), _place(root, PARTITION, "Eval")
        images = _place(root, IMAGES, "Img")
        label = reading.label or TARGET
        has = _values(_lines(self._tree, attributes), label, place=root / attributes)
        parts = _parts(_lines(self._tree, partition), place=root / partition)
        _check_same_images(set(has), set(parts), root)
        self._list = attributes
        self._mine = mine = [name for name, part in parts.items() if part == _PARTS[reading.split]]
        if not mine:
            raise DataError(
                f"Expected images of part {_PARTS[reading.split]} ({reading.split}), got none.",
                where=root / partition,
                fix="get the list again, or ask for another split",
            )
        names = (f"not {label}", label)
        classes = check_classes(reading.classes or names, where=root / attributes)
        self._names = [f"{images}/{name}" for name in mine]
        labels = number_words(names, classes)[np.array([has[name] for name in mine], dtype=np.int64)]
        self._settle(str(root), reading, name=NAME, classes=classes, labels=labels)

    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        has = _values(_lines(self._tree, self._list), name, place=Path(self._tree.where) / self._list)
        return (f"not {name}", name), np.array([has[image] for image in self._mine], dtype=np.int64)


def published(where: str) -> bool:
    """Whether a folder has one of the two lists, by their names: the other one may be missing, which is then said."""
    try:
        root = Path(where)
        return any(
            (root / name).is_file() for name in (ATTRIBUTES, f"Anno/{ATTRIBUTES}", PARTITION, f"Eval/{PARTITION}")
        )
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def _root(where: str) -> Path:
    if where != NAME or published(where):
        return Path(where)
    fix = f"get {IMAGES}, {ATTRIBUTES} and {PARTITION} from {SITE} and put them there, or name your folder"
    return put_there(NAME, called="CelebA", fix=fix)


def _place(root: Path, name: str, below: str) -> str:
    """Where a list or the folder of images is, relative to the root: beside the others, or in its published folder."""
    for place in (name, f"{below}/{name}"):
        if (root / place).is_dir() if name == IMAGES else (root / place).exists():
            return place
    packed = " and unpack it" if name == IMAGES else ""
    raise DataError(
        f"Expected {name} in the folder of CelebA or in its folder {below}, got neither.",
        where=root,
        fix=f"get it from {SITE}{packed}, and put it there",
    )


def _lines(tree: DiskTree, name: str) -> Lines:
    """The cells of each line that is not blank."""
    try:
        with tree.open(name) as stream:
            raw = stream.read(_LARGEST_LIST + 1)
        if len(raw) > _LARGEST_LIST:
            raise Unreadable(f"more than {_LARGEST_LIST // 2**20} MB")
        text = raw.decode("utf-8-sig")
    except (Unreadable, UnicodeDecodeError, OSError) as reason:
        raise DataError(
            f"Expected a list in plain text, got a file that cannot be read ({printable(reason)[:100]}).",
            where=f"{tree.where}: {name}",
            fix=f"get {Path(name).name} again from {SITE}",
        ) from reason
    return [(number, cells) for number, line in enumerate(text.split("\n"), 1) if (cells := line.split())]


def _values(lines: Lines, label: str, *, place: Path) -> dict[str, bool]:
    """Each image in the list of attributes, and whether it has that attribute."""
    count, names = _header(lines, place)
    column = 1 + _column(names, label, place)
    found: dict[str, bool] = {}
    for number, name, cells in _rows(lines[2:], cells=1 + len(names), place=place):
        if cells[column] not in ("1", "-1"):
            _broken(f"1 or -1 for {label}", f"'{printable(cells[column])[:40]}'", number, place)
        found[name] = cells[column] == "1"
    if len(found) != count:
        raise DataError(
            f"Expected {count} images, as the first line says, got {len(found)}.",
            where=place,
            fix="get the list again, or mend its first line",
        )
    return found


def _header(lines: Lines, place: Path) -> tuple[int, list[str]]:
    """The number of images and the names of the attributes."""
    if len(lines) < 2 or not re.fullmatch("[0-9]{1,9}", " ".join(lines[0][1])):
        raise DataError(
            "Expected the number of images in the first line and the attributes in the second, got other lines.",
            where=place,
            fix=f"get the list again from {SITE}",
        )
    return int(lines[0][1][0]), lines[1][1]


def _parts(lines: Lines, *, place: Path) -> dict[str, str]:
    """Each image in the partition, and its part."""
    found: dict[str, str] = {}
    for number, name, cells in _rows(lines, cells=2, place=place):
        if cells[1] not in ("0", "1", "2"):
            _broken("part 0, 1 or 2", f"'{printable(cells[1])[:40]}'", number, place)
        found[name] = cells[1]
    return found


def _rows(lines: Lines, *, cells: int, place: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, image and all cells of each line, once it has as many as it should and names a new file."""
    seen: set[str] = set()
    for number, row in lines:
        name = row[0]
        if len(row) != cells:
            _broken(f"{cells} cells", str(len(row)), number, place)
        if "/" in name or "\\" in name or "\0" in name or name.startswith("."):  # it must not lead out of the folder
            _broken("the name of an image file", f"'{printable(name)[:150]}'", number, place)
        if name in seen:
            _broken("each image once", f"{printable(name)[:150]} again", number, place)
        seen.add(name)
        yield number, name, row


def _broken(expected: str, got: str, line: int, place: Path) -> NoReturn:
    raise DataError(
        f"Expected {expected} in line {line}, got {got}.",
        where=place,
        fix=f"mend that line, or get the list again from {SITE}",
    )


def _column(names: list[str], label: str, place: Path) -> int:
    if names.count(label) > 1:
        raise DataError(
            f"Expected one attribute '{printable(label)}', got {names.count(label)}.",
            where=place,
            fix=f"get the list again from {SITE}",
        )
    if label not in names:
        raise UsageError(
            f"Expected an attribute, one of {printable(', '.join(names))[:700]}; got '{printable(label)}'.",
            where=place,
            fix="name one of them with --label or --group",
        )
    return names.index(label)


def _check_same_images(attributes: set[str], partition: set[str], root: Path) -> None:
    for here, there, one, other in (
        (attributes, partition, ATTRIBUTES, PARTITION),
        (partition, attributes, PARTITION, ATTRIBUTES),
    ):
        if alone := here - there:
            raise DataError(
                f"Expected the same images in both lists, got {len(alone)} in {one} that are not in {other}, such as "
                f"{printable(min(alone))[:150]}.",
                where=root,
                fix="use both lists of one version",
            )
