"""Real images in the clear, as judges need them: read in the release's shape, after the release is on disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import UsageError
from sfumato.values import Groups, Images, ModelRelease, Reference, Release


def judged_on(reference: Reference) -> str:
    if reference.test is not None:
        return "the test split"
    return "the training records themselves: there is no test split"


def reference_for(
    release: Release | ModelRelease,
    real: str,
    reading: Reading,
    *,
    public: str | None = None,
    group: str | None = None,
) -> Reference:
    """Real images in the shape of a release's images, or of those that a released classifier takes.

    A mismatch of shape or classes is refused.
    """
    shape, classes = _shape_and_classes(release)
    channels, height, width = shape
    square = height if height == width else None
    mode: Literal["grey", "colour"] = "grey" if channels == 1 else "colour"
    reading = replace(reading, size=reading.size or square, mode=reading.mode or mode)
    train = data.load(real, reading)
    test = data.load(real, replace(reading, split="test")) if data.has_split(real, "test") else None
    for images in filter(None, (train, test)):
        _refuse_other_kind(images, shape, classes)
    there = Reference(train=train, test=test)
    return replace(
        there,
        public=None if public is None else data.load(public, Reading(size=height, mode=mode)),
        groups=None if group is None else _groups(there, real, replace(reading, label=group, classes=None)),
    )


def _groups(there: Reference, real: str, reading: Reading) -> Groups:
    """The protected attribute, read as if it were the label: of the same records in the same order."""
    read = {"train": data.load(real, reading)}
    if there.test is not None:
        read["test"] = data.load(real, replace(reading, split="test"))
    for images, grouped in zip(filter(None, (there.train, there.test)), read.values(), strict=True):
        if not images.pixels.equal(grouped.pixels):
            raise UsageError(
                f"Expected a {reading.label!r} for each image that has a label, got images without one.",
                fix="complete the attribute table, or choose another --group",
            )
    if read["train"].labels.equal(there.train.labels):
        raise UsageError(
            "Expected groups beside the classes, got the classes themselves.",
            fix="name another column with --group, of a data set with an attribute table",
        )
    return Groups(read["train"].classes, **{split: grouped.labels for split, grouped in read.items()})


def _shape_and_classes(release: Release | ModelRelease) -> tuple[tuple[int, int, int], tuple[str, ...]]:
    if isinstance(release, ModelRelease):
        return release.shape, release.classes
    facts = release.certificate["public"]
    return (facts["channels"], facts["height"], facts["width"]), tuple(facts["classes"])


def _refuse_other_kind(images: Images, shape: tuple[int, int, int], classes: tuple[str, ...]) -> None:
    if tuple(images.pixels.shape[1:]) != shape or images.classes != classes:
        raise UsageError(
            f"Expected real images of shape {shape} with the released classes; "
            f"got {tuple(images.pixels.shape[1:])} with {len(images.classes)} classes.",
            fix="give the data that the release was made from, with the same --size, --mode and --label",
        )
