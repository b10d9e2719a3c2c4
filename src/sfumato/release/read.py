"""Read a release of images back, once its sums hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.release import layout
from sfumato.release.certificate import Certificate, read_image_certificate
from sfumato.release.subset import Subset, subsets_of
from sfumato.release.sums import refuse_changed
from sfumato.release.tables import read_table
from sfumato.values import Images, Release


def read_release(folder: Path | str) -> Release:
    """The release in a folder; a folder that differs from its sums is refused; its claim is not verified."""
    path = Path(folder)
    refuse_changed(path)
    certificate = read_image_certificate(path)
    found = {subset.name: _images(path, certificate, subset) for subset in subsets_of(certificate)}
    further: dict[str, Any] = {name: images for name, images in found.items() if name in layout.FURTHER}
    return Release(path, certificate.model_dump(mode="json"), replace(found[layout.DATA], **further))


def _images(path: Path, certificate: Certificate, subset: Subset) -> Images:
    import torch

    pixels, labels, logits = read_table(path, subset)
    soft = None if logits is None else torch.from_numpy(logits)
    seen_through = certificate.public.public_network if subset.name == layout.NETWORK else None
    named = torch.from_numpy(labels[layout.LABEL])
    return Images(torch.from_numpy(pixels), named, certificate.public.classes, soft, seen_through=seen_through)
