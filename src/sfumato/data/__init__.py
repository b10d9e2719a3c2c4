"""One file, one source: the only reader of images from files, hardened against whatever the files hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._attributes import attributes_of, labels_of, load_attributed, parts_of
from sfumato.data._download import Download, fetch
from sfumato.data._reader import Reader
from sfumato.data._unlabelled import ImageArray, ImageFiles, Unlabelled
from sfumato.data._which import reader_of
from sfumato.errors import SfumatoError
from sfumato.values import Images, Source

__all__ = [
    "Download",
    "Unlabelled",
    "attributes_of",
    "fetch",
    "has_split",
    "labels_of",
    "load",
    "load_attributed",
    "open_source",
    "open_unlabelled",
    "parts_of",
]


def open_source(where: str | Path, reading: Reading = Reading()) -> Source:  # noqa: B008 - frozen, so shared safely
    """The data set at a path or of a name; reads headers, but no pixels yet."""
    return reader_of(str(where))(str(where), reading)


def open_unlabelled(where: str | Path, reading: Reading = Reading()) -> Unlabelled:  # noqa: B008 - frozen
    """The images at a path or of a name without labels; a folder or zip of image files may have any layout."""
    place = str(where)
    for reader in (ImageFiles, ImageArray):
        if reader.recognises(place):
            return Unlabelled(reader(place, reading))
    return Unlabelled(open_source(place, reading))


def load(where: str | Path, reading: Reading = Reading()) -> Images:  # noqa: B008 - frozen, so shared safely
    """All of a data set in memory, for public data and for judges; absent records are left out."""
    import torch

    source = open_source(where, reading)
    spec = source.spec
    pixels = np.empty((spec.count, *spec.shape), dtype=np.uint8)
    labels = np.empty(spec.count, dtype=np.int64)
    start = 0
    for block, numbers in source.chunks():
        pixels[start : start + len(block)], labels[start : start + len(block)] = block, numbers
        start += len(block)
    soft = source.logits() if hasattr(source, "logits") else None
    there = (labels >= 0) & (labels < len(spec.classes))
    if not there.all():
        pixels, labels = pixels[there], labels[there]
        soft = None if soft is None else soft[there]
    return Images(
        pixels=torch.from_numpy(pixels),
        labels=torch.from_numpy(labels),
        classes=spec.classes,
        logits=None if soft is None else torch.from_numpy(soft),
    )


def has_split(where: str | Path, split: str) -> bool:
    """Whether a data set has that split."""
    reader = reader_of(str(where))
    if issubclass(reader, Reader):
        return split in reader.splits(str(where))
    try:  # a third-party reader may not list its splits, so it is opened
        reader(str(where), Reading(split="test" if split == "test" else "train"))
    except SfumatoError:
        return False
    return True
