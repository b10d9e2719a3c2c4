"""Checks on the files of a release: the right ones, unchanged, and nothing in them but what belongs there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import SfumatoError, printable
from sfumato.release import layout
from sfumato.release.card import card_problem
from sfumato.release.certificate import AnyCertificate, Certificate, ModelCertificate
from sfumato.release.shards import record_batches, shard_problem
from sfumato.release.sums import entries, sums_problems
from sfumato.release.tensors import file_problem, values_problem
from sfumato.release.verdict import Check
from sfumato.values import ReleaseKind

if TYPE_CHECKING:
    import pyarrow as pa

_SEVERAL = 3  # problems named in one detail


def attempt(name: str, question: Callable[[], str | list[str]]) -> Check:
    """Run a check; problems or any error make it a failed one, so that the other checks still run."""
    try:
        answer = question()
    except SfumatoError as error:
        return Check(name, False, error.what)
    except Exception as error:  # noqa: BLE001  # a hostile file can make a reader raise anything
        return Check(name, False, f"could not be read ({type(error).__name__}: {printable(error)[:200]})")
    if isinstance(answer, str):
        return Check(name, True, answer)
    more = f" (and {len(answer) - _SEVERAL} more)" if len(answer) > _SEVERAL else ""
    return Check(name, False, "; ".join(answer[:_SEVERAL]) + more)


def check_files(folder: Path, kind: ReleaseKind) -> list[Check]:
    """Sums and names."""

    def names() -> str | list[str]:
        strange = [
            f"{printable(name)} does not belong in a release"
            for name, _ in entries(folder)
            if not layout.allowed(name, kind)
        ]
        return strange or "only files that a release may have"

    return [
        attempt("sums", lambda: sums_problems(folder) or f"every file is listed in {layout.SUMS} and unchanged"),
        attempt("file names", names),
    ]


def check_pictures(folder: Path, certificate: Certificate) -> list[Check]:
    """Card and preview."""
    return [
        attempt("card", lambda: _card(folder, certificate)),
        attempt("preview", lambda: _preview(folder)),
    ]


def check_model(folder: Path, certificate: ModelCertificate) -> list[Check]:
    """The card of a classifier, the file of its weights, and every number in it."""
    path, facts = folder / layout.WEIGHTS, certificate.model
    stated = f"{len(facts.tensors):,} tensors with {facts.parameters:,} parameters, as stated, and nothing beside them"

    def tensors() -> str | list[str]:
        problem = file_problem(path, facts.tensors)
        return [f"{layout.WEIGHTS} {problem}"] if problem else stated

    def weights() -> str | list[str]:
        problem = values_problem(path)
        return [f"{layout.WEIGHTS} {problem}"] if problem else "all finite"

    as_stated = attempt("tensors", tensors)
    unread = Check("weights", False, "not read, because the file is not one of the tensors that are stated")
    return [
        attempt("card", lambda: _card(folder, certificate)),
        as_stated,
        attempt("weights", weights) if as_stated.ok else unread,
    ]


def _card(folder: Path, certificate: AnyCertificate) -> str | list[str]:
    text = layout.read_regular(folder / layout.CARD, most=1 << 20).decode("utf-8")
    exported = any(layout.exported(name) for name, _ in entries(folder))
    problem = card_problem(text, certificate, folders=exported)
    return [f"{layout.CARD} {problem}"] if problem else "the one that the certificate gives"


def _preview(folder: Path) -> str | list[str]:
    raw = layout.read_regular(folder / layout.PREVIEW, most=1 << 26)
    problem = layout.png_problem(raw, channels=3, size=None)
    return [f"{layout.PREVIEW} {problem}"] if problem else "a plain picture without hidden parts"


@dataclass(frozen=True, slots=True)
class Subset:
    """What a certificate says of one folder of shards; its checks have a prefix, except those of class images."""

    name: str
    count: int
    soft: bool  # each image has logits

    @property
    def prefix(self) -> str:
        return "" if self.name == layout.DATA else f"{self.name} "


def check_table(folder: Path, certificate: Certificate) -> list[Check]:
    """The Parquet shards of each subset: columns and metadata, then every row."""
    samples = certificate.samples
    subsets = [Subset(layout.DATA, samples.count, samples.has_logits)]
    checks: list[Check] = []
    for further in layout.FURTHER:
        if count := getattr(samples, further):
            subsets.append(Subset(further, count, True))
        elif any(name.startswith(f"{further}/") for name, _ in entries(folder)):
            detail = f"there are files in {further}/, where the certificate states no such images"
            checks.append(Check(further, False, detail))
    for subset in subsets:
        table = _Table(folder, certificate, subset)
        checks.append(attempt(f"{subset.prefix}columns", partial(_columns, table)))
        checks += _Rows(table).checks()
    return checks


class _Table:
    """The shards of a subset, each with what is wrong with it."""

    def __init__(self, folder: Path, certificate: Certificate, subset: Subset) -> None:
        self.folder = folder
        self.public = certificate.public
        self.subset = subset
        classes = self.public.classes
        self.schema = layout.parquet_schema(classes, len(classes) if subset.soft else None)
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


class _Rows:
    """One pass over all rows of a subset, for four checks."""

    def __init__(self, table: _Table) -> None:
        self._table = table
        self._folder = table.folder
        self._public = table.public
        self._subset = table.subset
        export = (name for name, _ in entries(table.folder) if layout.exported(name))
        # an image's number counts all images before it, so if a shard was not read none can be compared
        comparable = table.subset.name == layout.DATA and not any(table.shards.values())
        self._exported = set(export) if comparable else set()
        self._class_folders = layout.class_folders(table.public.classes)
        self._images: list[str] = []
        self._labels: list[str] = []
        self._logits: list[str] = []
        self._count = 0

    def checks(self) -> list[Check]:
        prefix = self._subset.prefix
        read = attempt(f"{prefix}rows", self._read)
        if not self._count and not read.ok:
            return [read]
        size = f"{self._public.height}x{self._public.width}, {self._public.channels} channels"
        if read.ok:
            self._images += [f"{name} is not an image of the shards" for name in sorted(self._exported)]
        checks = [
            attempt(f"{prefix}count", self._counted) if read.ok else read,
            attempt(f"{prefix}images", lambda: self._images or f"{size}, pixels only (all inflated)"),
            attempt(f"{prefix}labels", lambda: self._labels or f"all within the {len(self._public.classes)} classes"),
        ]
        if self._subset.soft:
            checks.append(attempt(f"{prefix}logits", lambda: self._logits or "all finite, and the labels say the same"))
        return checks

    def _counted(self) -> str | list[str]:
        stated = self._subset.count
        if self._count != stated:
            return [f"{self._count:,} images where the certificate states {stated:,}"]
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
        labels = batch.column("label").to_pylist()
        pictures = batch.column("image")
        if any(path is not None for path in pictures.field("path").to_pylist()):
            self._images.append("an image states a path, which could name a private file")
        start = self._count
        for label, png in zip(labels, pictures.field("bytes").to_pylist(), strict=True):
            self._row(self._count, label, png)
            self._count += 1
        if self._subset.soft:
            self._soft_labels(batch.column("logits"), labels, start)

    def _soft_labels(self, column: pa.Array, labels: list[int | None], start: int) -> None:
        import numpy as np

        values = column.flatten().to_numpy(zero_copy_only=False)
        if column.null_count or not np.isfinite(values).all():
            self._logits.append(f"a logit before image {self._count} is not finite")
            return
        logits = values.reshape(len(labels), -1)
        inside = [k for k, label in enumerate(labels) if label is not None and 0 <= label < logits.shape[1]]
        for k in layout.disagreeing(logits[inside], np.array([labels[k] for k in inside], np.int64)):
            self._logits.append(f"image {start + inside[k]} has another label than its logits say")

    def _row(self, index: int, label: int | None, png: bytes | None) -> None:
        public = self._public
        problem = layout.png_problem(png or b"", channels=public.channels, size=(public.height, public.width))
        if problem:
            self._images.append(f"image {index} {problem}")
        if label is None or not 0 <= label < len(public.classes):
            self._labels.append(f"image {index} has label {label}, outside 0..{len(public.classes) - 1}")
        elif self._exported:
            name = f"images/{self._class_folders[label]}/{index:06d}.png"
            if name not in self._exported:
                self._images.append(f"{name} is missing")
            elif png == layout.read_regular(self._folder / name, most=1 << 28):
                self._exported.discard(name)
