"""Your own images with a table: a folder (or zip) of images and one CSV that names each file and its labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from sfumato.contracts import Reading
from sfumato.data._archive import ZipTree
from sfumato.data._decode import Unreadable
from sfumato.data._labels import from_words, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import BESIDE_IMAGES, DiskTree, Tree
from sfumato.errors import DataError, UsageError, printable

_FILE_COLUMNS = ("file", "filename", "image", "path")
_LARGEST_TABLE = 256 * 2**20  # bytes


class Table(TreeRecords):
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

    def __init__(self, where: str, reading: Reading) -> None:
        check_split(reading.split, self.splits(where), where=where)
        path = Path(where)
        self._tree = DiskTree(path) if path.is_dir() else ZipTree(path)
        every = list(self._tree.walk())
        table = _find_table(every, where)
        columns, rows = _read(self._tree, table, where)
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


def _read(tree: Tree, table: str, where: str) -> tuple[list[str], list[list[str]]]:
    place = f"{where}: {table}"
    try:
        with tree.open(table) as stream:
            raw = stream.read(_LARGEST_TABLE + 1)
        if len(raw) > _LARGEST_TABLE:
            raise Unreadable(f"more than {_LARGEST_TABLE // 2**20} MB")
        text = raw.decode("utf-8-sig")
        rows = list(_rows(text))
    except (Unreadable, UnicodeDecodeError, csv.Error) as reason:
        raise DataError(
            f"Expected a table in CSV and UTF-8, got a file that cannot be read ({printable(reason)}).",
            where=place,
            fix="save it again as CSV in UTF-8",
        ) from reason
    if not rows:
        raise DataError(
            "Expected a table with a row of column names, got an empty file.",
            where=place,
            fix="add the column names as the first row",
        )
    columns = [name.strip() for name in rows[0][1]]
    for line, row in rows[1:]:
        if len(row) != len(columns):
            raise DataError(
                f"Expected {len(columns)} cells in each row, got {len(row)} in line {line}.",
                where=place,
                fix="mend that line; quote cells that hold a separator",
            )
    return columns, [[cell.strip() for cell in row] for _, row in rows[1:]]


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    first = text.split("\n", 1)[0]
    separator = "," if "," in first else next((mark for mark in (";", "\t") if mark in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    for row in reader:
        if row:
            yield reader.line_num, row


def _columns(columns: list[str], label: str | None, place: str) -> tuple[int, int]:
    lower = [name.casefold() for name in columns]
    file_column = next((lower.index(name) for name in _FILE_COLUMNS if name in lower), 0)
    others = [name for k, name in enumerate(columns) if k != file_column]
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
    return file_column, columns.index(label)


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
