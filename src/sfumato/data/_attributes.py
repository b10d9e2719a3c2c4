"""Images with several attributes, such as race, age and gender of faces: which there are, and all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._face_labels import numbered_as_utkface, read_as_faces
from sfumato.data._labels import ABSENT, check_classes
from sfumato.data._reader import HasAttributes, check_split, refuse_bad, rows_per_chunk
from sfumato.data._which import reader_of
from sfumato.errors import DataError, UsageError, printable
from sfumato.progress import track
from sfumato.values import Attributed

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_VALUES = 100  # an attribute with more is an identifier or a measurement, and no label
FACE = ("age", "gender", "race")
JOINED = "+"  # several attributes as one, such as race+gender

Column = tuple[tuple[str, ...], "NDArray[np.int64]"]  # the values or classes, and each record's place among them


def attributes_of(where: str | Path, reading: Reading = Reading()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """The names of the attributes that a data set has beside its images, without a look at pixels; it may have none."""
    reader = reader_of(str(where))
    if not issubclass(reader, HasAttributes):
        return ()
    check_split(reading.split, reader.splits(str(where)), where=where)
    return reader.attributes(str(where))


def labels_of(where: str | Path, reading: Reading = Reading()) -> tuple[str, ...]:  # noqa: B008 - frozen
    """Those of its attributes that can be labels: an attribute with many values is an identifier or a measurement."""
    there = attributes_of(where, reading)
    if not there:
        return ()
    source = _opened(str(where), there, there, reading)
    columns = {name: source.attribute(name) for name in there}
    numbered = _numbered(source, there, columns)
    return tuple(
        name for name, (values, _) in columns.items() if len(_classes(name, values, numbered)[1]) <= MOST_VALUES
    )


def load_attributed(
    where: str | Path,
    names: Sequence[str],
    reading: Reading = Reading(),  # noqa: B008 - frozen, so shared safely
    *,
    person: str | None = None,
) -> Attributed:
    """The images of a data set with these attributes, pixels decoded once, in the order of the reader.

    A record that lacks one of the attributes is bad, as one that cannot be read is: it stops the reading, or is left
    out where `reading.skip_bad` says so. `reading.label` and `reading.classes` are not used.

    `person` names the attribute that says whose image it is: people are numbered as they first appear, however many
    they are. Any other attribute may have at most 100 values.

    Attributes called age, gender and race are read alike in all data sets, so that one can train and another test:
    age in more than 20 different whole numbers of years in FairFace's nine ranges, FairFace's seven races as UTKFace's
    five, and UTKFace's numbers by name, where all three attributes are there in its numbers. These classes are fixed:
    an image of each need not be there.

    Of attributes a and b, `a+b` is one attribute, whose classes are the pairs of theirs.
    """
    import torch

    there = attributes_of(where, reading)
    single = [part for name in names for part in parts_of(name, there)]
    wanted = tuple(dict.fromkeys([*single, *([] if person is None else [person])]))
    source = _opened(str(where), wanted, there, reading)
    columns = {name: source.attribute(name) for name in wanted}
    numbered = _numbered(source, there, columns)
    each = {name: _read(name, columns[name], numbered=numbered, where=where) for name in single}
    read = {name: _joined(name, [each[part] for part in parts_of(name, there)], where) for name in names}
    known = np.logical_and.reduce([places >= 0 for _, places in columns.values()])  # (n,)
    if not reading.skip_bad:
        lacking = [(source.called(k), _lacks(columns, k)) for k in np.flatnonzero(~known).tolist()]
        refuse_bad(lacking, source.spec.count, where=where)
    pixels, kept = _pixels(source, known)
    read = {name: (classes, places[kept]) for name, (classes, places) in read.items()}
    if person is not None:
        read[person] = _by_appearance(columns[person][0], columns[person][1][kept])
    return Attributed(
        torch.from_numpy(pixels),
        {name: torch.from_numpy(places) for name, (_, places) in read.items()},
        {name: classes for name, (classes, _) in read.items()},
    )


def parts_of(name: str, there: Sequence[str]) -> tuple[str, ...]:
    """The attributes that a name stands for: itself, or those that are joined in it."""
    return (name,) if name in there else tuple(name.split(JOINED))


def _joined(name: str, parts: Sequence[Column], where: object) -> Column:
    """One attribute in place of several: its classes are the combinations of theirs."""
    classes, places = parts[0]
    for more, others in parts[1:]:
        classes = tuple(f"{first}, {second}" for first in classes for second in more)
        places = np.where((places < 0) | (others < 0), ABSENT, places * len(more) + others)
    if len(classes) > MOST_VALUES:
        raise UsageError(
            f"Expected attributes with at most {MOST_VALUES} combinations, got {len(classes)} of "
            f"'{printable(name)[:80]}'.",
            where=where,
            fix="join fewer attributes",
        )
    return classes, places


def _opened(where: str, names: Sequence[str], there: Sequence[str], reading: Reading) -> HasAttributes:
    reader = reader_of(where)
    if not issubclass(reader, HasAttributes):
        raise UsageError(
            "Expected a data set with several attributes, got one that has a label only.",
            where=where,
            fix="give a folder or zip of images with a CSV, or UTKFace, FairFace or CelebA as they are published",
        )
    if not names or not set(names) <= set(there):
        got = next((f"'{printable(name)[:80]}'" for name in names if name not in there), "none")
        raise UsageError(
            f"Expected attributes among {printable(', '.join(there))[:700] or 'none'}; got {got}.",
            where=where,
            fix="name attributes that are there",
        )
    return reader(where, replace(reading, label=names[0], classes=None))


def _numbered(source: HasAttributes, there: Sequence[str], columns: Mapping[str, Column]) -> bool:
    """Whether a data set has UTKFace's numbers; attributes that are not asked for are looked at for that too."""
    faces = [name for name in there if name.casefold() in FACE]
    return numbered_as_utkface({name: (columns.get(name) or source.attribute(name))[0] for name in faces})


def _lacks(columns: Mapping[str, Column], number: int) -> str:
    return " and ".join(f"no {name}" for name, (_, places) in columns.items() if places[number] < 0)


def _read(name: str, column: Column, *, numbered: bool, where: object) -> Column:
    """An attribute under the names of its classes."""
    values, held = column
    called, classes = _classes(name, values, numbered)
    if len(classes) > MOST_VALUES:
        raise UsageError(
            f"Expected an attribute of at most {MOST_VALUES} values, got '{printable(name)[:80]}' with {len(classes)}: "
            "it looks like an identifier or a measurement.",
            where=where,
            fix="name another attribute, or group its values in the table",
        )
    place = {each: k for k, each in enumerate(check_classes(classes, where=where))}
    places = np.array([*(place[called[value]] for value in values), ABSENT], dtype=np.int64)  # the last is for ABSENT
    return classes, places[held]


def _classes(name: str, values: Sequence[str], numbered: bool) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """What each value is called, and the classes."""
    found = read_as_faces(name, values, numbered=numbered)
    return found or ({value: value for value in values}, tuple(values))


def _pixels(source: HasAttributes, known: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images of the records that are known and can be read, and the numbers of these records."""
    spec = source.spec
    pixels = np.empty((int(known.sum()), *spec.shape), dtype=np.uint8)  # (n, c, h, w)
    numbers: list[int] = []
    start = 0
    chunks = -(-spec.count // rows_per_chunk(spec.pixels))
    for block, labels in track(source.chunks(), what="reading images", total=chunks):
        there = np.flatnonzero(known[start : start + len(block)] & (labels != ABSENT))
        pixels[len(numbers) : len(numbers) + len(there)] = block[there]
        numbers += (start + there).tolist()
        start += len(block)
    if not numbers:
        raise DataError(
            "Expected at least one image with all of these attributes, got none.",
            where=source.name,
            fix="name fewer attributes, or complete the table",
        )
    return pixels[: len(numbers)], np.array(numbers, dtype=np.int64)


def _by_appearance(values: Sequence[str], held: NDArray[np.int64]) -> Column:
    """The same with values in the order in which they first appear, without those that do not."""
    found, first, places = np.unique(held, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return tuple(values[k] for k in found[order]), np.argsort(order)[places.reshape(-1)].astype(np.int64)
