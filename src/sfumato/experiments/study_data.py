"""The records of a study: those that train, others of the same kind, and images to test on, each with its group."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfumato import data
from sfumato.contracts import Reading
from sfumato.data._skewed import GROUPS, grey_views
from sfumato.errors import DataError, UsageError
from sfumato.values import Images, Spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAMED = re.compile("(cifar100?)(?:s-(75|95))?")  # plain, or with colour that goes with the class
CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the records are and how they are read."""

    name: str  # as the recipe calls it
    where: str
    reading: Reading
    group: str | None = None  # the column of a protected attribute, where colour is none

    @property
    def percent(self) -> int | None:
        """Of a skewed data set: how many in a hundred images of a class have its usual colour."""
        named = NAMED.fullmatch(self.name)
        return int(named[2]) if named and named[2] else None

    @property
    def coloured(self) -> bool:
        """Whether the groups are images in colour and in grey."""
        return NAMED.fullmatch(self.name) is not None

    def skewed(self, percent: int) -> str:
        """The same images with colour that goes with the class, as readers call them."""
        named = NAMED.fullmatch(self.name)
        assert named is not None
        name = f"{named[1]}s-{percent}"
        return f"{name}:{self.where}" if Path(self.where).is_file() else name


def plain_name(name: str) -> str:
    """The data set that a skewed one is made from; every other is its own."""
    named = NAMED.fullmatch(name)
    return named[1] if named else name


@dataclass(frozen=True, slots=True)
class Material:
    """What a classifier of the study is trained and judged on; real images in the clear."""

    train: Images
    others: Images  # never trained on, and as train in how classes and groups go together
    test: Images
    groups: Tensor  # (m,) of the test images
    names: tuple[str, ...]  # of the groups
    counted: Tensor  # bool (m,): the test images that accuracy is of

    def as_source(self) -> Held:
        return Held(self.train)


@dataclass(frozen=True, slots=True)
class Held:
    """Images in memory as the source that a sealed handle is made from."""

    images: Images
    name: str = "study"

    @property
    def spec(self) -> Spec:
        channels, height, width = self.images.pixels.shape[1:]
        return Spec(len(self.images), channels, height, width, self.images.classes)

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for start in range(0, len(self.images), CHUNK):
            part = slice(start, start + CHUNK)
            yield self.images.pixels[part].numpy(), self.images.labels[part].numpy()


@functools.lru_cache(maxsize=2)  # the runs of a condition have the same records
def load_material(place: Place, *, records: int, others: int) -> Material:
    """So many training records, drawn by a fixed seed, and at most so many others.

    CIFAR: each test image is judged in colour and in grey. Of a skewed set both count for accuracy, and the others are
    the test images, each in one of its two views by the rule of the training split: an attacker that could tell members
    by how colour goes with the class would not be one of membership. Otherwise the groups are a column of the table.
    """
    made = _coloured(place) if place.coloured else _grouped(place)
    if len(made.train) < records:
        raise DataError(
            f"Expected {records} training records, got {len(made.train)}.",
            where=place.where,
            fix="put the whole data set into the folder that --data or SFUMATO_DATA names, or use the profile small",
        )
    return replace(made, train=some(made.train, records, seed=0), others=some(made.others, others, seed=1))


def some(images: Images, most: int, *, seed: int) -> Images:
    """At most so many, chosen by the seed."""
    return images.rows(torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:most])


def _coloured(place: Place) -> Material:
    percent = place.percent
    where = place.where if percent is None else place.skewed(percent)
    # the test split of a skewed set has every image twice, in colour and then in grey, whatever the percentage is
    test = data.load(place.skewed(95), replace(place.reading, split="test"))
    train = replace(data.load(where, place.reading), classes=test.classes)
    groups = torch.arange(len(test)) % 2
    if percent is None:
        return Material(train, test.rows(groups == 0), test, groups, GROUPS, groups == 0)
    grey = grey_views(test.labels[::2].numpy(), split="train", classes=len(test.classes), percent=percent)
    seen = 2 * torch.arange(len(grey)) + torch.from_numpy(grey[:, 0]).long()
    return Material(train, test.rows(seen), test, groups, GROUPS, torch.ones(len(test), dtype=torch.bool))


def _grouped(place: Place) -> Material:
    if place.group is None:
        raise UsageError(
            f"Expected a data set of CIFAR, or the column of a protected attribute; got {place.name} without one.",
            fix="add group = ... to its entry in [data]",
        )
    test = data.load(place.where, replace(place.reading, split="test"))
    by_group = data.load(place.where, replace(place.reading, split="test", label=place.group, classes=None))
    if len(by_group) != len(test):
        raise DataError(f"Expected a group of every test image, got {len(by_group)} of {len(test)}.", where=place.where)
    everyone = torch.ones(len(test), dtype=torch.bool)
    train = data.load(place.where, place.reading)
    return Material(train, test, test, by_group.labels, by_group.classes, everyone)
