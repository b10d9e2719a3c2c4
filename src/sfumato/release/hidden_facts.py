"""The closed schema of hidden.json: what is stated, and not proved, of images with a hidden attribute."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sfumato.errors import UsageError, printable
from sfumato.release import layout
from sfumato.release.certificate import PUBLIC_NETWORK
from sfumato.release.closed import (
    Closed,
    Name,
    Positive,
    Scalar,
    Side,
    Text,
    first_problem,
    parse_closed,
    read_closed_file,
)
from sfumato.release.statements import NO_EPSILON
from sfumato.release.subset import Subset
from sfumato.values import ReleaseKind

FORMAT: Final = "sfumato-hidden-images/1"
MOST_LABELS: Final = 100
_VERSION: Final = r"^[0-9A-Za-z.+!-]{1,60}$"  # no sentence
PROMISING: Final = re.compile(r"epsilon|differential(ly)?[\s_-]*priva", re.IGNORECASE)  # what nothing here promises

Classes = Annotated[tuple[Name, ...], Field(min_length=1, max_length=10_000)]


class HidingMethod(Closed):
    """How the attribute was hidden."""

    name: Name
    package_version: Annotated[str, Field(pattern=_VERSION)]
    hyperparameters: Annotated[dict[Name, Scalar], Field(max_length=500)]


class ImageFacts(Closed):
    """How many images there are, and how large they are."""

    count: Positive
    channels: Literal[1, 3]
    height: Side
    width: Side


class HiddenFacts(Closed):
    """Everything that the hidden.json of a release may say; it is no certificate, because there is no epsilon here."""

    kind: ClassVar[ReleaseKind] = "hidden-images"

    format: Literal["sfumato-hidden-images/1"] = FORMAT
    level: Literal["empirical"] = "empirical"
    hidden: Name  # the attribute
    values: Annotated[Classes, Field(min_length=2)]  # what its values are called, which is public
    method: HidingMethod
    weights: Annotated[Text, Field(pattern=PUBLIC_NETWORK)] | None  # public ones that were used: name and checksum
    images: ImageFacts
    labels: Annotated[dict[Name, Classes], Field(max_length=MOST_LABELS)]  # that were kept, with their classes

    @model_validator(mode="after")
    def _promises_nothing(self) -> Self:
        if PROMISING.search(_words(self)):
            raise ValueError(f"expected no name with a word of a proved guarantee, because {NO_EPSILON}; got one")
        return self

    @model_validator(mode="after")
    def _labels_are_others(self) -> Self:
        taken = {_same(self.hidden), "image"}
        hidden = {_same(self.hidden), *map(_same, self.hidden.split("+"))}  # several are joined by it
        for name in self.labels:
            if {_same(name), *map(_same, name.split("+"))} & hidden:
                raise ValueError("expected kept labels other than the hidden attribute, got that one")
            if _same(name) in taken:
                raise ValueError(f"expected kept labels with names of their own, got {printable(name)!r} again")
            taken.add(_same(name))
        for name in (self.hidden, *self.labels):
            if not name.isprintable() or name != name.strip():
                raise ValueError(f"expected names of printable characters, got {printable(name)!r}")
        return self

    @model_validator(mode="after")
    def _classes_differ(self) -> Self:
        for classes in (self.values, *self.labels.values()):
            if len(set(classes)) != len(classes):
                raise ValueError("expected classes with names of their own, got one name twice")
        return self

    @property
    def subset(self) -> Subset:
        """The images in `data/`; their columns of labels are in the order of their names."""
        size = self.images
        labels = {name: self.labels[name] for name in sorted(self.labels)}
        shape = (size.channels, size.height, size.width)
        return Subset(layout.DATA, size.count, shape, labels, stated_in=layout.HIDDEN)


def checked_facts(**values: object) -> HiddenFacts:
    """Facts as a user's data and settings give them; what cannot be stated is refused before any work."""
    try:
        return HiddenFacts.model_validate(values)
    except ValidationError as error:
        raise UsageError(
            f"Expected names and numbers that a release may state; {first_problem(error)}.",
            fix="rename the attribute, label, class or setting, or leave it out",
        ) from None


def parse_hidden_facts(text: bytes, *, where: object = layout.HIDDEN) -> HiddenFacts:
    """Read facts that anyone may have written; whatever is wrong with them is named."""
    return parse_closed(text, lambda _: HiddenFacts, named=layout.HIDDEN, where=where)


def read_hidden_facts(folder: Path | str) -> HiddenFacts:
    """The facts of a release folder; they are read, not checked."""
    path = Path(folder) / layout.HIDDEN
    return parse_hidden_facts(read_closed_file(path), where=path)


def _same(name: str) -> str:
    """Equal for names that readers take for one."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _words(facts: HiddenFacts) -> str:
    """All texts of the publisher, one a line."""
    settings = facts.method.hyperparameters
    names: Sequence[object] = (facts.hidden, facts.method.name, facts.weights, *settings, *settings.values())
    classes = (name for label, of in facts.labels.items() for name in (label, *of))
    return "\n".join(str(name) for name in (*names, *facts.values, *classes))
