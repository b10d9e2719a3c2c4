"""One file, one source: the only reader of images from files, hardened against whatever the files hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sfumato.contracts import Dataset, Reading, find, names
from sfumato.data._download import Download, cache, fetch
from sfumato.data._layout import TAR
from sfumato.data._reader import Reader
from sfumato.data._unlabelled import ImageArray, ImageFiles, Unlabelled
from sfumato.errors import DataError, SfumatoError, UsageError, printable
from sfumato.values import Images, Source

__all__ = ["Download", "Unlabelled", "cache", "fetch", "has_split", "load", "open_source", "open_unlabelled"]


def open_source(where: str | Path, reading: Reading = Reading()) -> Source:  # noqa: B008 - frozen, so shared safely
    """The data set at a path or of a name; reads headers, but no pixels yet."""
    return _reader(str(where))(str(where), reading)


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
    reader = _reader(str(where))
    if issubclass(reader, Reader):
        return split in reader.splits(str(where))
    try:  # a third-party reader may not list its splits, so it is opened
        reader(str(where), Reading(split="test" if split == "test" else "train"))
    except SfumatoError:
        return False
    return True


def _reader(where: str) -> type[Dataset]:
    """The one reader for that path or name."""
    found = {name: reader for name in names("data") if (reader := find("data", name)).recognises(where)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(
            f"Expected one meaning of '{printable(where)}', got {len(found)}: {' and '.join(found)}.",
            fix=f"write ./{printable(where)} for the folder, or call the data set from elsewhere",
        )
    if where.casefold().endswith(TAR):
        raise DataError(
            "Expected a folder or a zip archive, got a tar archive.", where=where, fix="unpack it, and name the folder"
        )
    accepted = (
        "a folder of class folders, a folder or .zip of images with a CSV, an .npz, a folder of idx files, "
        f"a .parquet or a folder of them, or a name ({', '.join(_by_name())})"
    )
    there = "\0" not in where and (Path(where).exists() or Path(where).is_symlink())
    kind, got = (DataError, "something else") if there else (UsageError, "a path where nothing is")
    raise kind(f"Expected {accepted}; got {got}.", where=where, fix="check the path, or run `sfumato list datasets`")


def _by_name() -> list[str]:
    return [name for name in names("data") if find("data", name).recognises(name)]
