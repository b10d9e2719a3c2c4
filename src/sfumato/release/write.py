"""Write a release of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sfumato.errors import UsageError
from sfumato.release import layout
from sfumato.release.card import render_card
from sfumato.release.certificate import Certificate
from sfumato.release.new_folder import new_folder, write_file
from sfumato.release.preview import draw_preview
from sfumato.release.shards import GROUP_ROWS, WRITTEN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.values import Images

SHARD_BYTES = 256 << 20  # of pixels before compression
_WHAT = {layout.TRANSFER: "images for transfer", layout.NETWORK: "images for the public network"}


class _Table(NamedTuple):
    """One subset of a release as arrays."""

    pixels: NDArray[np.uint8]  # (n, c, h, w)
    labels: NDArray[np.int64]  # (n,)
    logits: NDArray[np.float32] | None  # (n, k)

    def rows(self, part: slice) -> _Table:
        return _Table(self.pixels[part], self.labels[part], None if self.logits is None else self.logits[part])


def write_release(
    folder: Path | str, images: Images, certificate: Certificate, *, export_folders: bool = False
) -> Path:
    """Write images and certificate as a release folder; the bytes depend on nothing else."""
    target = Path(folder).absolute()
    tables = _tables(images, certificate)
    with new_folder(target) as work:
        _fill(work, tables, certificate, export_folders=export_folders)
    return target


def _tables(images: Images, certificate: Certificate) -> dict[str, _Table]:
    """The images of each subset as arrays, after they were compared with what the certificate says of them."""
    samples = certificate.samples
    tables = {layout.DATA: _table(images, certificate, samples.count, soft=samples.has_logits, what="images")}
    for subset in layout.FURTHER:
        count: int = getattr(samples, subset)
        further: Images | None = getattr(images, subset)
        if further is not None:
            tables[subset] = _table(further, certificate, count, soft=True, what=_WHAT[subset])
        elif count:
            raise UsageError(f"Expected {count} {_WHAT[subset]} as in the certificate, got none.")
    return tables


def _table(images: Images, certificate: Certificate, count: int, *, soft: bool, what: str) -> _Table:
    pixels, labels = _array(images.pixels, "uint8"), _array(images.labels, "int64")
    logits = None if images.logits is None else _array(images.logits, "float32")
    public = certificate.public
    facts: list[tuple[str, Any, Any]] = [
        (what, count, len(pixels)),
        (f"labels of {what}", count, len(labels)),
        (f"{what} of shape", (public.channels, public.height, public.width), pixels.shape[1:]),
        (f"{what} of the classes", public.classes, tuple(images.classes)),
        (f"logits with {what}:", soft, logits is not None),
    ]
    for name, expected, got in facts:
        if expected != got:
            raise UsageError(f"Expected {name} {expected} as in the certificate, got {got}.")
    if labels.min() < 0 or labels.max() >= len(public.classes):
        raise UsageError(f"Expected labels in 0..{len(public.classes) - 1}, got {labels.min()}..{labels.max()}.")
    if public.channels == 2:
        raise UsageError("Expected images of 1 or 3 channels, got 2.")
    if logits is not None:
        _check_logits(logits, labels, len(public.classes))
    return _Table(pixels, labels, logits)


def _check_logits(logits: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> None:
    if logits.shape != (len(labels), classes) or not abs(logits).max() < float("inf"):
        raise UsageError(f"Expected finite logits of shape ({len(labels)}, {classes}), got shape {logits.shape}.")
    others = layout.disagreeing(logits, labels)
    if others.size:
        raise UsageError(f"Expected labels that are what the logits say, got another for image {others[0]}.")


def _array(tensor: Any, dtype: str) -> Any:
    array = tensor.detach().cpu().numpy()
    if array.dtype != dtype:
        raise UsageError(f"Expected images with {dtype} here, got {array.dtype}.")
    return array


def _fill(work: Path, tables: dict[str, _Table], certificate: Certificate, *, export_folders: bool) -> None:
    for subset, table in tables.items():
        (work / subset).mkdir()
        rows = max(1, SHARD_BYTES // max(1, table.pixels[0].size))
        total = -(-len(table.labels) // rows)
        for index in range(total):
            path = work / layout.shard_name(index, total, subset=subset)
            _write_shard(path, table.rows(slice(index * rows, (index + 1) * rows)), certificate)
    pixels, labels, _ = tables[layout.DATA]
    if export_folders:
        _export(work / "images", pixels, labels, certificate)
    write_file(work / layout.CERTIFICATE, certificate.to_json().encode())
    write_file(work / layout.CARD, render_card(certificate, folders=export_folders).encode())
    write_file(work / layout.PREVIEW, draw_preview(pixels, labels, certificate))


def _write_shard(path: Path, table: _Table, certificate: Certificate) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    width = None if table.logits is None else table.logits.shape[1]
    schema = layout.parquet_schema(certificate.public.classes, width)
    with path.open("wb") as file:
        with pq.ParquetWriter(file, schema, **WRITTEN) as writer:
            for start in range(0, len(table.labels), GROUP_ROWS):
                part = table.rows(slice(start, start + GROUP_ROWS))
                rows = [{"bytes": layout.encode_png(p), "path": None} for p in part.pixels]
                columns = [pa.array(rows, schema.field("image").type), pa.array(part.labels)]
                if part.logits is not None:
                    flat = pa.array(part.logits.ravel())
                    columns.append(pa.FixedSizeListArray.from_arrays(flat, type=schema.field("logits").type))
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        file.flush()
        os.fsync(file.fileno())


def _export(root: Path, pixels: NDArray[np.uint8], labels: NDArray[np.int64], certificate: Certificate) -> None:
    folders = [root / name for name in layout.class_folders(certificate.public.classes)]
    for folder in folders:
        folder.mkdir(parents=True)
    for index, label in enumerate(labels):
        write_file(folders[label] / f"{index:06d}.png", layout.encode_png(pixels[index]))
