"""From the labels as they are written to class numbers, with -1 for a record that must count as absent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CLASSES = 30_000
ABSENT = -1

Labels = Sequence[str | None] | Sequence[int | None]


def check_classes(classes: Sequence[str], *, where: object) -> tuple[str, ...]:
    """The class names, if they can be shown and published: short, printable, each once."""
    if not 1 <= len(classes) <= MOST_CLASSES:
        raise DataError(
            f"Expected 1 to {MOST_CLASSES} classes, got {len(classes)}.",
            where=where,
            fix="choose another label, or group its values",
        )
    for name in classes:
        if not name or not name.isprintable() or len(name) > 200:
            raise DataError(
                f"Expected class names of 1 to 200 printable characters, got '{printable(name)[:80]}'.",
                where=where,
                fix="rename the class",
            )
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise UsageError(
            f"Expected each class once, got '{printable(twice)}' twice.",
            where=where,
            fix="list each class once",
        )
    return tuple(classes)


def from_words(words: Iterable[str | None], wanted: tuple[str, ...] | None, *, where: object) -> tuple[str, ...]:
    """The classes of labels that are words: those asked for, or the distinct ones, whole numbers by value."""
    if wanted is not None:
        return check_classes(wanted, where=where)
    distinct = {word for word in words if word is not None}
    if len(distinct) > MOST_CLASSES:
        check_classes(list(distinct), where=where)
    return check_classes(in_order(distinct), where=where)


def in_order(words: Collection[str]) -> tuple[str, ...]:
    """Sorted, whole numbers by value."""
    return tuple(sorted(words, key=_by_value if whole(words) else str))


def whole(words: Iterable[str]) -> bool:
    """Whether all of them are whole numbers."""
    return all(word.removeprefix("-").isdecimal() and len(word) < 20 for word in words)


def from_numbers(
    numbers: NDArray[np.int64],
    names: tuple[str, ...] | None,
    wanted: tuple[str, ...] | None,
    *,
    where: object,
) -> tuple[str, ...]:
    """The classes of labels that are numbers: those asked for or named, or 0, 1, ... up to the largest."""
    if wanted is not None or names is not None:
        return check_classes(wanted or names or (), where=where)
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    if low < 0:
        raise DataError(
            f"Expected labels 0, 1, 2, ..., got {low}.",
            where=where,
            fix="mend the labels, or list the classes with --classes; records outside the list count as absent",
        )
    if high >= MOST_CLASSES:
        raise DataError(
            f"Expected labels below {MOST_CLASSES}, got {high}.",
            where=where,
            fix="number the classes 0, 1, 2, ...",
        )
    return check_classes([str(k) for k in range(high + 1)], where=where)


def number_words(words: Iterable[str | None], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Each word's place in the classes."""
    place = {name: k for k, name in enumerate(classes)}
    return np.array([ABSENT if word is None else place.get(word, ABSENT) for word in words], dtype=np.int64)


def number_numbers(
    numbers: NDArray[np.int64], names: tuple[str, ...] | None, classes: tuple[str, ...]
) -> NDArray[np.int64]:
    """Each number's place in the classes: by name where the data names its numbers, else itself."""
    if names is None or names == classes:
        inside = (numbers >= 0) & (numbers < len(classes))
        return np.where(inside, numbers, ABSENT).astype(np.int64)
    place = number_words(names, classes)
    inside = (numbers >= 0) & (numbers < len(names))
    return np.where(inside, place[np.where(inside, numbers, 0)], ABSENT).astype(np.int64)


def _by_value(word: str) -> tuple[int, str]:
    return int(word), word
