"""Your own images with a table: a folder (or zip) of images and one CSV that names each file and its labels."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sfumato.contracts import Reading
from sfumato.data._archive import ZipTree
from sfumato.data._csv import read_csv
from sfumato.data._labels import from_words, in_order, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import HasAttributes, check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import BESIDE_IMAGES, DiskTree, Tree
from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FILE_COLUMNS = ("file", "filename", "image", "path")


class Table(TreeRecords, HasAttributes):
    """Images whose labels are a column of a CSV; a file is named relative to the CSV, or by its name alone.

    The classes are the column's distinct values, sorted, whole numbers by value. An image without a row and a
    row without an image are bad records, as a row without a label is.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "table"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train",)

    @classmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        tree = _tree(where)
        columns, _ = read_csv(tree, _find_table(list(tree.walk()), where), where)
        return tuple(dict.fromkeys(_others(columns)))

    def __init__(self, where: str, reading: Reading) -> None:
        check_split(reading.split, self.splits(where), where=where)
        path = Path(where)
        self._tree = _tree(where)
        every = list(self._tree.walk())
        self._table = table = _find_table(every, where)
        columns, rows = read_csv(self._tree, table, where)
        file_column, label_column = _columns(columns, reading.label, f"{where}: {table}")
        base = PurePosixPath(table).parent
        listed = _resolve([row[file_column] for row in rows], base, every, f"{where}: {table}")
        self._reasons = {
            name: "no label in its row" for name, row in zip(listed, rows, strict=True) if not row[label_column]
        }
        self._reasons |= _absent(listed, every)
        known = set(listed)
        loose = [name for name in every if name not in known and not name.casefold().endswith(BESIDE_IMAGES)]
        self._reasons |= dict.fromkeys(loose, f"no row in {table}")
        words = [row[label_column] or None for row in rows]
        classes = from_words(words, reading.classes, where=f"{where}: {table}") if rows else ()
        self._names = [*listed, *loose]
        labels = number_words([*words, *[None] * len(loose)], classes)
        self._settle(where, reading, name=path.resolve().stem, classes=classes, labels=labels)

    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        columns, rows = read_csv(self._tree, self._table, self._where)  # read again, so that no table stays in memory
        _, column = _columns(columns, name, f"{self._where}: {self._table}")
        words = [row[column] or None for row in rows]
        values = in_order({word for word in words if word is not None})
        return values, number_words([*words, *[None] * (len(self._names) - len(words))], values)


def _tree(where: str) -> Tree:
    path = Path(where)
    return DiskTree(path) if path.is_dir() else ZipTree(path)


def _find_table(every: list[str], where: str) -> str:
    tables = [name for name in every if name.casefold().endswith(".csv") and name.count("/") <= 1]
    tables = [name for name in tables if "/" not in name] or tables  # one folder may have been packed around it all
    if len(tables) != 1:
        raise DataError(
            f"Expected one table (CSV) beside the images, got {len(tables)}: {printable(', '.join(tables[:4]))}.",
            where=where,
            fix="keep the one that names the labels",
        )
    return tables[0]


def _columns(columns: list[str], label: str | None, place: str) -> tuple[int, int]:
    others = _others(columns)
    if label is None or label not in others:
        got = "none" if label is None else f"'{printable(label)}'"
        raise UsageError(
            f"Expected a label column, one of {printable(', '.join(others))[:400] or 'none'}; got {got}.",
            where=place,
            fix="name the column with --label",
        )
    if columns.count(label) > 1:
        raise DataError(
            f"Expected one column '{printable(label)}', got {columns.count(label)}.",
            where=place,
            fix="rename the other columns",
        )
    return _file_column(columns), columns.index(label)


def _others(columns: list[str]) -> list[str]:
    return [name for k, name in enumerate(columns) if k != _file_column(columns)]


def _file_column(columns: list[str]) -> int:
    lower = [name.casefold() for name in columns]
    return next((lower.index(name) for name in _FILE_COLUMNS if name in lower), 0)


def _absent(listed: list[str], every: list[str]) -> dict[str, str]:
    """Files that the table names and the folder does not list, found here, so that no such path is ever opened."""
    outside = "a path that leaves the folder"
    return {
        name: outside if name.startswith("/") or ".." in name.split("/") else "the file is missing"
        for name in set(listed).difference(every)
    }


def _resolve(written: list[str], base: PurePosixPath, every: list[str], place: str) -> list[str]:
    """The files as the tree names them; a name that is not there stays as it is written."""
    there = set(every)
    by_name: dict[str, list[str]] = {}
    for name in every:
        by_name.setdefault(name.rsplit("/", 1)[-1], []).append(name)
    found = []
    for cell in written:
        beside = str(base / cell)
        alone = by_name.get(cell, [])
        found.append(beside if beside in there or len(alone) != 1 else alone[0])
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise DataError(
                f"Expected each file once in the table, got {printable(name)[:150]} twice.",
                where=place,
                fix="remove one of the two rows",
            )
        seen.add(name)
    return found
