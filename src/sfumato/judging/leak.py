"""Measure what a hidden release gives away of its real data, and what it is worth; lab side, after it is on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError
from sfumato.judging.attribute_judges import find_judge
from sfumato.judging.attribute_leak import Front, Leak, Pairs, leak_of
from sfumato.judging.leak_table import add_leak, read_leaks
from sfumato.lab.folder import Lab
from sfumato.lab.pictures import side_by_side
from sfumato.lab.provenance import PARTS, Provenance, read_provenance
from sfumato.release import read_hidden
from sfumato.statistics.faces import front_faces
from sfumato.values import Attributed

MOST_SEEDS = 100
PICTURE = "real_vs_hidden.png"


def measure_leak(
    folder: Path | str,
    real: str,
    *,
    attribute: str | None = None,
    keep: tuple[str, ...] | None = None,
    judge: str = "small",
    seeds: int = 3,
    parts: str | None = None,
    front: Front = "no",
    reading: Reading | None = None,
) -> Leak:
    """Measure what the hidden release in `folder` gives away of the real data; the results go to its lab folder.

    `parts` are those whose released images the judges are trained on: g, v+g or tr+v+g; by default all that were
    released. With `front` "test", only real images that show a face from the front are tested. There is no epsilon
    here: everything is measured, and holds for judges like these. Where `reading` does not say how large the real
    images are, they are read as large as the released ones.
    """
    trainer = find_judge(judge)
    if reading is not None and (reading.label is not None or reading.classes is not None):
        raise UsageError(
            "Expected neither --label nor --classes: which attributes are read is as in `hide`.", fix="leave them out"
        )
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"Expected 1 to {MOST_SEEDS} seeds, got {seeds}.", fix="give a number in this range")
    if front not in ("no", "test"):
        raise UsageError(f"Expected front as no or test, got {front!r}.", fix="choose one of these")
    release = read_hidden(Path(folder))
    lab = Lab.beside(release.path.absolute())
    provenance = read_provenance(lab.folder)
    asked = (_hidden(attribute, provenance), *_kept(keep, tuple(release.images.attributes)))
    chosen = _parts(parts, provenance)
    with lab:  # report an unusable lab folder, or a foreign table in it, before the work
        read_leaks(lab.folder)
    reading = _as_released(reading or Reading(), release.images)
    images = data.load_attributed(real, provenance.names, reading, person=provenance.person)
    provenance.check(images)
    pairs = pairs_of(release.images, images, provenance, chosen, values=release.facts.values)
    if front == "test":
        pairs = from_the_front(pairs)
    found = leak_of(pairs, asked, trainer, judge=judge, seeds=tuple(range(seeds)), parts="+".join(chosen), front=front)
    hidden = found.attribute
    with lab:
        add_leak(lab, found)
        side_by_side(
            pairs.real.labelled(hidden), pairs.released.labelled(hidden), lab.folder / PICTURE, caption="HIDDEN"
        )
    return found


def pairs_of(
    released: Attributed,
    images: Attributed,
    provenance: Provenance,
    parts: tuple[str, ...],
    *,
    values: tuple[str, ...] = (),
) -> Pairs:
    """The released images of these parts beside their sources, and the real images of the part test.

    `values` are those of the hidden attribute that the release states: what the head tells is in their order.
    """
    expected = (len(provenance.sources), *images.pixels.shape[1:])
    if released.pixels.shape != expected:
        raise DataError(
            f"Expected released images of shape {expected} as the lab says, got {tuple(released.pixels.shape)}.",
            fix="keep release and lab as `hide` wrote them",
        )
    sources = images.rows(provenance.sources)
    for name in released.attributes:
        if name not in sources.attributes or not released.attributes[name].equal(sources.attributes[name]):
            raise DataError(
                f"Expected the {name} of each released image to be that of the image that it was made from.",
                fix="keep release and lab as `hide` wrote them",
            )
    tests = provenance.parts == PARTS.index("test")
    tests[provenance.sources] = False
    if not tests.any():
        raise UsageError(
            "Expected real images of the part test, which are not released, got none: `hide` held none back.",
            fix="hide the attribute again with a part for tests",
        )
    chosen = provenance.released(parts).nonzero()[:, 0]
    chosen = chosen[provenance.sources[chosen].argsort()]  # as read, so that judges do not depend on the random order
    people = None if provenance.person is None else sources.attributes[provenance.person][chosen]
    head, learnt = _head(provenance, parts, chosen, values, images.classes[provenance.attribute])
    # Judges learn every attribute that images have: who is on them, and what is not released, is none to learn.
    names = [name for name in images.attributes if name in (provenance.attribute, *released.attributes)]
    real, test = (_with_attributes(some, names) for some in (sources.rows(chosen), images.rows(tests)))
    return Pairs(real.with_pixels(released.pixels[chosen]), real, test, head, learnt, people)


def _head(
    provenance: Provenance, parts: tuple[str, ...], chosen: Tensor, values: tuple[str, ...], classes: tuple[str, ...]
) -> tuple[Tensor | None, Tensor]:
    """The class that the method's head tells of each released image of these parts, and those that it learnt from."""
    told, counts = provenance.told, provenance.head_learnt
    # What the head says of images that trained it shows how well it remembers them, not what is left of the attribute.
    if told is None or counts is None or (provenance.tr_trained and "tr" in parts):
        return None, torch.zeros(0, dtype=torch.int64)
    if told.shape != (len(provenance.sources), len(values)) or len(counts) != len(classes) or set(values) - {*classes}:
        raise DataError(
            "Expected a head that tells the values of the hidden attribute that the release states, got another.",
            fix="keep release and lab as `hide` wrote them",
        )
    places = torch.tensor([classes.index(name) for name in values])  # no image need be there of a class of a fixed list
    head = places[told[chosen].argmax(1)]
    return head, torch.arange(len(classes)).repeat_interleave(counts)


def _with_attributes(images: Attributed, names: list[str]) -> Attributed:
    """The images with these attributes alone."""
    return Attributed(images.pixels, {k: images.attributes[k] for k in names}, {k: images.classes[k] for k in names})


def _as_released(reading: Reading, released: Attributed) -> Reading:
    """How real images are read: in the size and mode of the released ones, where it is not said."""
    channels, height, width = released.pixels.shape[1:]
    square = height if height == width else None
    mode: Literal["grey", "colour"] = "grey" if channels == 1 else "colour"
    return replace(reading, size=reading.size or square, mode=reading.mode or mode)


def from_the_front(pairs: Pairs) -> Pairs:
    """The same, with test images that show a face from the front; the head is asked about such faces alone, too."""
    front = pairs.test.rows(front_faces(pairs.test.pixels))
    if pairs.head is None:
        return replace(pairs, test=front)
    return replace(pairs, test=front, head=pairs.head.where(front_faces(pairs.real.pixels), -1))


def _hidden(attribute: str | None, provenance: Provenance) -> str:
    if attribute not in (None, provenance.attribute):
        raise UsageError(
            f"Expected the attribute that is hidden here, {provenance.attribute}; got {attribute!r}.",
            fix=f"write --attribute {provenance.attribute}, or leave it out",
        )
    return provenance.attribute


def _kept(keep: tuple[str, ...] | None, there: tuple[str, ...]) -> tuple[str, ...]:
    if keep is None:
        return there
    for name in keep:
        if name not in there:
            raise UsageError(
                f"Expected kept attributes among {', '.join(there) or '(there are none)'}; got {name!r}.",
                fix="choose some of these, or leave --keep out",
            )
    return tuple(dict.fromkeys(keep))


def _parts(parts: str | None, provenance: Provenance) -> tuple[str, ...]:
    """The parts that are asked for, or all that were released, in the order of PARTS."""
    numbers = set(provenance.parts[provenance.sources].tolist())
    there = tuple(part for at, part in enumerate(PARTS) if at in numbers and part != "test")
    if parts is None:
        if not there:
            raise UsageError("Expected released images of the parts tr, v or g, got none.", fix="release one of these")
        return there
    wanted = parts.split("+")
    for part in wanted:
        if part not in there:
            raise UsageError(
                f"Expected parts that were released, {'+'.join(there) or '(there are none)'}; got {parts!r}.",
                fix="name some of these with + between them, such as v+g",
            )
    return tuple(part for part in there if part in wanted)
