"""Write a release of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import UsageError
from sfumato.release import layout
from sfumato.release.card import render_card
from sfumato.release.certificate import Certificate
from sfumato.release.new_folder import new_folder, write_file
from sfumato.release.preview import draw_preview
from sfumato.release.subset import subsets_of
from sfumato.release.tables import Table, array, write_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.values import Images

_WHAT = {layout.TRANSFER: "images for transfer", layout.NETWORK: "images for the public network"}


def write_release(
    folder: Path | str, images: Images, certificate: Certificate, *, export_folders: bool = False
) -> Path:
    """Write images and certificate as a release folder; the bytes depend on nothing else."""
    target = Path(folder).absolute()
    tables = _tables(images, certificate)
    with new_folder(target) as work:
        _fill(work, tables, certificate, export_folders=export_folders)
    return target


def _tables(images: Images, certificate: Certificate) -> dict[str, Table]:
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


def _table(images: Images, certificate: Certificate, count: int, *, soft: bool, what: str) -> Table:
    pixels, labels = array(images.pixels, "uint8"), array(images.labels, "int64")
    logits = None if images.logits is None else array(images.logits, "float32")
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
    return Table(pixels, {layout.LABEL: labels}, logits)


def _check_logits(logits: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> None:
    if logits.shape != (len(labels), classes) or not abs(logits).max() < float("inf"):
        raise UsageError(f"Expected finite logits of shape ({len(labels)}, {classes}), got shape {logits.shape}.")
    others = layout.disagreeing(logits, labels)
    if others.size:
        raise UsageError(f"Expected labels that are what the logits say, got another for image {others[0]}.")


def _fill(work: Path, tables: dict[str, Table], certificate: Certificate, *, export_folders: bool) -> None:
    for subset in subsets_of(certificate):
        write_table(work, subset, tables[subset.name])
    pixels, labels = tables[layout.DATA].pixels, tables[layout.DATA].labels[layout.LABEL]
    if export_folders:
        _export(work / "images", pixels, labels, certificate)
    write_file(work / layout.CERTIFICATE, certificate.to_json().encode())
    write_file(work / layout.CARD, render_card(certificate, folders=export_folders).encode())
    write_file(work / layout.PREVIEW, draw_preview(pixels, labels, certificate))


def _export(root: Path, pixels: NDArray[np.uint8], labels: NDArray[np.int64], certificate: Certificate) -> None:
    folders = [root / name for name in layout.class_folders(certificate.public.classes)]
    for folder in folders:
        folder.mkdir(parents=True)
    for index, label in enumerate(labels):
        write_file(folders[label] / f"{index:06d}.png", layout.encode_png(pixels[index]))
