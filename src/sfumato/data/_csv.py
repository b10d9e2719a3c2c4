"""A table in CSV from a folder or archive of untrusted files: its column names and its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from sfumato.data._decode import Unreadable
from sfumato.data._tree import Tree
from sfumato.errors import DataError, printable

_LARGEST_TABLE = 256 * 2**20  # bytes


def read_csv(tree: Tree, table: str, where: str) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the cells of each row; every row has as many cells as there are columns."""
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
