"""FairFace (Karkkainen and Joo 2021) in its published layout: folders `train` and `val`, and a table for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.contracts import Reading
from sfumato.data._csv import read_csv
from sfumato.data._download import put_there
from sfumato.data._face_labels import AGE_OF, AGES, FIVE_RACES, GENDER_OF, GENDERS, RACES, RACES7
from sfumato.data._labels import check_classes, number_numbers, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import HasAttributes, check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import DiskTree
from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "fairface"
SITE = "https://github.com/joojs/fairface"
TABLES = {"train": "fairface_label_train.csv", "test": "fairface_label_val.csv"}
TARGET = "race"

# attribute -> its column, what is written there and what we call it, the values in their order
_ATTRIBUTES: dict[str, tuple[str, Mapping[str, str], tuple[str, ...]]] = {
    "race": ("race", FIVE_RACES, RACES),
    "race7": ("race", {race: race for race in RACES7}, RACES7),
    "gender": ("gender", GENDER_OF, GENDERS),
    "age": ("age", AGE_OF, AGES),
}


class FairFace(TreeRecords, HasAttributes):
    """Faces with the attributes race (UTKFace's five), race7 (the published seven), gender and age (nine ranges).

    East and Southeast Asian are read as Asian, Latino_Hispanic and Middle Eastern as Others; race is the label by
    default. The test split is the published `val`. It is found by the path of the folder in which its tables are, or
    by the name `fairface` in the cache folder; it is not downloaded.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return where == NAME or layout(where) == "fairface"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        root = _root(where)
        return tuple(split for split, table in TABLES.items() if (root / table).exists())

    @classmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        return tuple(_ATTRIBUTES)

    def __init__(self, where: str, reading: Reading) -> None:
        check_split(reading.split, self.splits(where), where=where)
        root, label = _root(where), reading.label or TARGET
        self._tree, self._table = DiskTree(root), TABLES[reading.split]
        self._place = f"{root}: {self._table}"
        self._names = self._column("file")
        _check_once(self._names, self._place)
        values, numbers = self.attribute(label)
        self._reasons = {
            name: f"no {label} in its row" for name, number in zip(self._names, numbers, strict=True) if number < 0
        }
        classes = check_classes(reading.classes or values, where=self._place)
        labels = number_numbers(numbers, values, classes)
        self._settle(str(root), reading, name=NAME, classes=classes, labels=labels)

    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        if name not in _ATTRIBUTES:
            raise UsageError(
                f"Expected an attribute, one of {', '.join(_ATTRIBUTES)}; got '{printable(name)}'.",
                where=self._place,
                fix="name one of them with --label or --group",
            )
        column, called, values = _ATTRIBUTES[name]
        cells = self._column(column)
        if strange := sorted({cell for cell in cells if cell} - set(called)):
            raise DataError(
                f"Expected a {column}, one of {', '.join(called)}; got '{printable(strange[0])[:80]}'.",
                where=self._place,
                fix=f"get the table again from {SITE}",
            )
        return values, number_words([called.get(cell) for cell in cells], values)

    def _column(self, name: str) -> list[str]:
        columns, rows = read_csv(self._tree, self._table, self._tree.where)
        if columns.count(name) != 1:
            raise DataError(
                f"Expected a column '{name}', got {printable(', '.join(columns))[:200]}.",
                where=self._place,
                fix=f"get the table again from {SITE}",
            )
        return [row[columns.index(name)] for row in rows]


def _root(where: str) -> Path:
    if where != NAME or layout(where) == "fairface":
        return Path(where)
    fix = f"get the images and {' and '.join(TABLES.values())} from {SITE} and put them there, or name your folder"
    return put_there(NAME, called="FairFace", fix=fix)


def _check_once(names: list[str], place: str) -> None:
    (twice, times), *_ = Counter(names).most_common(1) or [("", 0)]
    if times > 1:
        raise DataError(
            f"Expected each file once in the table, got {printable(twice)[:150]} {times} times.",
            where=place,
            fix="keep one of these rows",
        )
