"""Checks on the Parquet shards of a release: columns and metadata, then every row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.release import layout
from sfumato.release.certificate import Certificate
from sfumato.release.contents import attempt
from sfumato.release.shards import record_batches, shard_problem
from sfumato.release.subset import Subset, subsets_of
from sfumato.release.sums import entries
from sfumato.release.verdict import Check

if TYPE_CHECKING:
    import pyarrow as pa


def check_table(folder: Path, certificate: Certificate) -> list[Check]:
    """All subsets of a release of images; one that is there and not stated fails."""
    subsets = subsets_of(certificate)
    checks: list[Check] = []
    for further in layout.FURTHER:
        stated = any(subset.name == further for subset in subsets)
        if not stated and any(name.startswith(f"{further}/") for name, _ in entries(folder)):
            detail = f"there are files in {further}/, where the certificate states no such images"
            checks.append(Check(further, False, detail))
    for subset in subsets:
        exported = _Exported(folder, certificate.public.classes) if subset.name == layout.DATA else None
        checks += check_subset(folder, subset, exported)
    return checks


def check_subset(folder: Path, subset: Subset, exported: _Exported | None = None) -> list[Check]:
    """One folder of shards; the checks have a prefix, except those of the images in `data/`."""
    table = _Table(folder, subset)
    return [attempt(f"{table.prefix}columns", partial(_columns, table)), *_Rows(table, exported).checks()]


class _Table:
    """The shards of a subset, each with what is wrong with it."""

    def __init__(self, folder: Path, subset: Subset) -> None:
        self.subset = subset
        self.prefix = "" if subset.name == layout.DATA else f"{subset.name} "
        self.schema = subset.schema
        self.shards = {path: shard_problem(path, self.schema) for path in layout.shards(folder, subset=subset.name)}


def _columns(table: _Table) -> str | list[str]:
    name = table.subset.name
    shards = list(table.shards)
    problems = [problem for problem in table.shards.values() if problem]
    numbered = [layout.shard_name(i, len(shards), subset=name) for i in range(len(shards))]
    if [f"{name}/{p.name}" for p in shards] != numbered:
        problems.append(f"the shards in {name}/ are not numbered without gaps")
    if not shards:
        problems.append(f"there are no shards in {name}/")
    return problems or f"{len(shards)} shard{'s' if len(shards) > 1 else ''}, known columns and metadata only"


class _Exported:
    """Images that also lie in class folders, which must be those of the shards."""

    def __init__(self, folder: Path, classes: tuple[str, ...]) -> None:
        self._folder = folder
        self._class_folders = layout.class_folders(classes)
        self._left = {name for name, _ in entries(folder) if layout.exported(name)}

    def problems(self, start: int, labels: list[int | None], pngs: list[bytes | None]) -> list[str]:
        """Which of these rows, whose first has the number `start`, are missing; those that are there are ticked off."""
        missing = []
        for index, (label, png) in enumerate(zip(labels, pngs, strict=True), start):
            if not self._left or label is None or not 0 <= label < len(self._class_folders):
                continue
            name = f"images/{self._class_folders[label]}/{index:06d}.png"
            if name not in self._left:
                missing.append(f"{name} is missing")
            elif png == layout.read_regular(self._folder / name, most=1 << 28):
                self._left.discard(name)
        return missing

    def left(self) -> list[str]:
        return [f"{name} is not an image of the shards" for name in sorted(self._left)]


class _Rows:
    """One pass over all rows of a subset, for four checks."""

    def __init__(self, table: _Table, exported: _Exported | None) -> None:
        self._table = table
        self._subset = table.subset
        # an image's number counts all images before it, so if a shard was not read none can be compared
        self._exported = None if any(table.shards.values()) else exported
        self._images: list[str] = []
        self._labels: list[str] = []
        self._logits: list[str] = []
        self._count = 0

    def checks(self) -> list[Check]:
        prefix, subset = self._table.prefix, self._subset
        read = attempt(f"{prefix}rows", self._read)
        if not self._count and not read.ok:
            return [read]
        channels, height, width = subset.shape
        size = f"{height}x{width}, {channels} channels"
        if read.ok and self._exported is not None:
            self._images += self._exported.left()
        checks = [
            attempt(f"{prefix}count", self._counted) if read.ok else read,
            attempt(f"{prefix}images", lambda: self._images or f"{size}, pixels only (all inflated)"),
        ]
        if subset.labels:
            checks.append(attempt(f"{prefix}labels", lambda: self._labels or _within(subset.labels)))
        if subset.logits is not None:
            checks.append(attempt(f"{prefix}logits", lambda: self._logits or "all finite, and the labels say the same"))
        return checks

    def _counted(self) -> str | list[str]:
        stated = self._subset.count
        if self._count != stated:
            return [f"{self._count:,} images where {self._subset.stated_in} states {stated:,}"]
        return f"{stated:,} images, as stated"

    def _read(self) -> str | list[str]:
        unread = []
        for shard, problem in self._table.shards.items():
            if problem:  # reading a refused shard could exhaust the memory
                unread.append(f"the rows of {shard.name} were not read, because it failed the check of its columns")
                continue
            for batch in record_batches(shard, self._table.schema):
                self._batch(batch)
        return unread or ""

    def _batch(self, batch: pa.RecordBatch) -> None:
        pictures = batch.column("image")
        if any(path is not None for path in pictures.field("path").to_pylist()):
            self._images.append("an image states a path, which could name a private file")
        start, pngs = self._count, pictures.field("bytes").to_pylist()
        for png in pngs:
            problem = layout.png_problem(png or b"", channels=self._subset.shape[0], size=self._subset.size)
            if problem:
                self._images.append(f"image {self._count} {problem}")
            self._count += 1
        for name, classes in self._subset.labels.items():
            for index, label in enumerate(batch.column(name).to_pylist(), start):
                if not _inside(label, len(classes)):
                    self._labels.append(f"image {index} has {name} {label}, outside 0..{len(classes) - 1}")
        if self._exported is not None:
            labels = batch.column(layout.LABEL).to_pylist()
            self._images += self._exported.problems(start, labels, pngs)
        if self._subset.logits is not None:
            self._soft_labels(batch.column("logits"), batch.column(layout.LABEL).to_pylist(), start)

    def _soft_labels(self, column: pa.Array, labels: list[int | None], start: int) -> None:
        import numpy as np

        values = column.flatten().to_numpy(zero_copy_only=False)
        if column.null_count or not np.isfinite(values).all():
            self._logits.append(f"a logit before image {self._count} is not finite")
            return
        logits = values.reshape(len(labels), -1)
        inside = [k for k, label in enumerate(labels) if _inside(label, logits.shape[1])]
        for k in layout.disagreeing(logits[inside], np.array([labels[k] for k in inside], np.int64)):
            self._logits.append(f"image {start + inside[k]} has another label than its logits say")


def _inside(label: int | None, classes: int) -> bool:
    return label is not None and 0 <= label < classes


def _within(labels: Mapping[str, tuple[str, ...]]) -> str:
    if len(labels) > 1:
        return f"all {len(labels)} columns within their classes"
    (classes,) = labels.values()
    return f"all within the {len(classes)} classes"
