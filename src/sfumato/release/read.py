"""Read a release back, in row groups, once its sums hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from sfumato.errors import VerificationFailed
from sfumato.release import layout
from sfumato.release.certificate import Certificate, read_image_certificate
from sfumato.release.shards import record_batches, shard_rows
from sfumato.release.sums import refuse_changed
from sfumato.values import Images, Release

_INFLATED = 1032  # bytes that deflate can make of one


def read_release(folder: Path | str) -> Release:
    """The release in a folder; a folder that differs from its sums is refused; its claim is not verified."""
    path = Path(folder)
    refuse_changed(path)
    certificate = read_image_certificate(path)
    samples = certificate.samples
    images = _images(path, certificate, layout.DATA, samples.count, soft=samples.has_logits)
    further: dict[str, Any] = {}
    for subset in layout.FURTHER:
        if count := getattr(samples, subset):
            further[subset] = _images(path, certificate, subset, count, soft=True)
    return Release(path, certificate.model_dump(mode="json"), replace(images, **further))


def _images(path: Path, certificate: Certificate, subset: str, count: int, *, soft: bool) -> Images:
    """The images of one subset, with logits where they are `soft`."""
    import numpy as np
    import torch

    public = certificate.public
    size, width = (public.height, public.width), len(public.classes)
    schema = layout.parquet_schema(public.classes, width if soft else None)
    shards = layout.shards(path, subset=subset)
    try:
        rows = sum(shard_rows(shard, schema) for shard in shards)
        if rows != count:
            raise ValueError(f"{rows} images in {subset}/ where the certificate states {count}")
        _refuse_impossible(shards, count, public.channels * prod(size))
        pixels = np.empty((count, public.channels, *size), dtype=np.uint8)
        labels = np.empty(count, dtype=np.int64)
        logits = np.empty((count, width if soft else 0), dtype=np.float32)
        at = 0
        for batch in (batch for shard in shards for batch in record_batches(shard, schema)):
            for row, png in enumerate(batch.column("image").field("bytes").to_pylist()):
                pixels[at + row] = layout.decode_png(png or b"", channels=public.channels, size=size)
            labels[at : at + len(batch)] = batch.column("label").to_numpy()
            if soft:
                flat = batch.column("logits").flatten().to_numpy(zero_copy_only=False)
                logits[at : at + len(batch)] = flat.reshape(len(batch), -1)
            at += len(batch)
    except (ValueError, KeyError, IndexError, RuntimeError, OSError, SyntaxError) as error:
        raise VerificationFailed(
            f"Expected images as the certificate states them, got: {error}.",
            where=path,
            fix="run `sfumato verify` to see all problems",
        ) from error
    kept = torch.from_numpy(logits) if soft else None
    seen_through = public.public_network if subset == layout.NETWORK else None
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels), public.classes, kept, seen_through=seen_through)


def _refuse_impossible(shards: Sequence[Path], count: int, pixel_bytes: int) -> None:
    """Refuse more pixels than the files can hold, before memory is allocated for them."""
    size = sum(shard.stat().st_size for shard in shards)
    if count * pixel_bytes > _INFLATED * size:
        raise ValueError(f"{count} images of {pixel_bytes} bytes each, which cannot be in files of {size} bytes")
