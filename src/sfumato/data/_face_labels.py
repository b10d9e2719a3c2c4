"""Race, gender and age of faces as every face data set is read: five races, two genders, nine ranges of age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.data._labels import whole
from sfumato.errors import DataError

RACES = ("White", "Black", "Asian", "Indian", "Others")  # UTKFace's numbers 0 to 4
GENDERS = ("Male", "Female")  # UTKFace's numbers 0 and 1
AGES = ("0-2", "3-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70+")  # FairFace's ranges of years
OLDEST = 150  # years; a larger number is no age

# FairFace's seven races, and where each belongs; UTKFace says that its Others are such as Hispanic and Middle Eastern
FIVE_RACES = {
    "White": "White",
    "Black": "Black",
    "Latino_Hispanic": "Others",
    "East Asian": "Asian",
    "Southeast Asian": "Asian",
    "Indian": "Indian",
    "Middle Eastern": "Others",
}
RACES7 = tuple(FIVE_RACES)

GENDER_OF = {gender: gender for gender in GENDERS}
AGE_OF = {**{age: age for age in AGES}, "more than 70": "70+"}  # as FairFace writes it -> as we do

# attribute -> what a word for it is read as, and the classes in their order
_WORDS: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "age": (AGE_OF, AGES),
    "gender": (GENDER_OF, GENDERS),
    "race": ({**{race: race for race in RACES}, **FIVE_RACES}, RACES),
}
_MOST_GROUPS = 20  # more different whole numbers than these are ages in years, and not groups of ages

_YOUNGEST = (0, 3, *range(10, 80, 10))  # of each range


def age_range(years: int) -> str:
    """The range of an age in whole years."""
    if not 0 <= years <= OLDEST:
        raise DataError(
            f"Expected ages of 0 to {OLDEST} years, got {years}.",
            fix="mend the ages; leave a cell empty where the age is not known",
        )
    return AGES[sum(youngest <= years for youngest in _YOUNGEST) - 1]


def read_as_faces(
    name: str, values: Sequence[str], *, numbered: bool
) -> tuple[Mapping[str, str], tuple[str, ...]] | None:
    """What each value of an attribute of that name is read as, and the classes; None where it is no such attribute.

    An attribute called age with more than 20 different whole numbers holds years, which are read in FairFace's ranges;
    FairFace's names of races are read as the five. `numbered`: race and gender are UTKFace's numbers.
    """
    kind = name.casefold()
    if kind not in _WORDS:
        return None
    words, classes = _WORDS[kind]
    if kind == "age" and _are_years(values):
        return {value: age_range(int(value)) for value in values}, classes
    if kind != "age" and numbered:
        return {str(number): called for number, called in enumerate(classes)}, classes
    return (words, classes) if set(values) <= set(words) else None


def numbered_as_utkface(values: Mapping[str, Sequence[str]]) -> bool:
    """Whether these are UTKFace's numbers: years in an attribute age, 0 to 1 in gender and 0 to 4 in race.

    All three must be there, because numbers alone do not say what they stand for.
    """
    known = {name.casefold(): held for name, held in values.items()}
    return (
        set(_WORDS) <= set(known)
        and _are_years(known["age"])
        and set(known["gender"]) <= {"0", "1"}
        and set(known["race"]) <= set("01234")
    )


def _are_years(values: Sequence[str]) -> bool:
    return len(values) > _MOST_GROUPS and whole(values)
