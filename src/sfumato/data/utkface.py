"""UTKFace (Zhang et al. 2017) in its published layout: a folder of faces whose names say age, gender and race."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.contracts import Reading
from sfumato.data._download import put_there
from sfumato.data._face_labels import AGES, GENDERS, OLDEST, RACES, age_range
from sfumato.data._labels import check_classes, number_numbers, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import HasAttributes, check_split
from sfumato.data._records import TreeRecords
from sfumato.data._tree import BESIDE_IMAGES, DiskTree
from sfumato.errors import UsageError, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "utkface"
SITE = "https://susanqq.github.io/UTKFace"
VALUES = {"age": AGES, "gender": GENDERS, "race": RACES}  # in the order of a file's name
TARGET = "race"

# Age, gender, race, date; what follows the date does not matter: some published names lack a dot or have a blank there.
_NAME = re.compile(r"([0-9]{1,3})_([01])_([0-4])_[0-9]+[^0-9].*", re.DOTALL)


class UTKFace(TreeRecords, HasAttributes):
    """Faces with the attributes race (five), gender and age (FairFace's nine ranges); race is the label by default.

    A file is called `[age]_[gender]_[race]_[date].jpg`, or `.jpg.chip.jpg`. Some published names lack a part, such as
    the race: these are bad records. It is found by the path of its folder, where most names have that form, or by the
    name `utkface` in the cache folder; it is not downloaded, because its terms have to be agreed to.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return where == NAME or layout(where) == "utkface"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train",)

    @classmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        return tuple(VALUES)

    def __init__(self, where: str, reading: Reading) -> None:
        check_split(reading.split, self.splits(where), where=where)
        root = _root(where)
        self._tree = DiskTree(root)
        self._names = [name for name in self._tree.walk() if not name.casefold().endswith(BESIDE_IMAGES)]
        self._faces = [_attributes(name.rsplit("/", 1)[-1]) for name in self._names]
        broken = "a name without age, gender and race"
        self._reasons = {name: broken for name, face in zip(self._names, self._faces, strict=True) if face is None}
        values, numbers = self.attribute(_checked(reading.label or TARGET, where))
        classes = check_classes(reading.classes or values, where=where)
        labels = number_numbers(numbers, values, classes)
        self._settle(str(root), reading, name=NAME, classes=classes, labels=labels)

    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        words = [None if face is None else face[name] for face in self._faces]
        return VALUES[name], number_words(words, VALUES[name])


def _root(where: str) -> Path:
    if where != NAME or layout(where) == "utkface":
        return Path(where)
    fix = f"get the aligned and cropped faces from {SITE} and unpack them there, or name your folder"
    return put_there(NAME, called="UTKFace", fix=fix)


def _attributes(name: str) -> dict[str, str] | None:
    """What a file's name says; None where it does not say all."""
    parts = _NAME.fullmatch(name)
    if parts is None or int(parts[1]) > OLDEST:
        return None
    return {"age": age_range(int(parts[1])), "gender": GENDERS[int(parts[2])], "race": RACES[int(parts[3])]}


def _checked(label: str, where: str) -> str:
    if label not in VALUES:
        raise UsageError(
            f"Expected an attribute, one of {', '.join(VALUES)}; got '{printable(label)}'.",
            where=where,
            fix="name one of them with --label or --group",
        )
    return label
