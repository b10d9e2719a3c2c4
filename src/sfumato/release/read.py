"""Read a release back, in row groups, once its sums hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout
from sfumato.release.certificate import Certificate, read_certificate
from sfumato.release.sums import sums_problems
from sfumato.values import Images, Release

if TYPE_CHECKING:
    import pyarrow as pa


def read_release(folder: Path | str) -> Release:
    """The release in a folder; a folder that differs from its sums is refused, its claim is not judged."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    problems = sums_problems(path)
    if problems:
        raise VerificationFailed(
            f"Expected the files that {layout.SUMS} lists: {problems[0]}.",
            where=path,
            fix="run `sfumato verify` to see all problems, or get the release again",
        )
    certificate = read_certificate(path)
    samples = certificate.samples
    images = _images(path, certificate, layout.DATA, samples.count, soft=samples.has_logits)
    if samples.transfer:
        further = _images(path, certificate, layout.TRANSFER, samples.transfer, soft=True)
        images = replace(images, transfer=further)
    return Release(path, certificate.model_dump(mode="json"), images)


def record_batches(shard: Path) -> Iterator[pa.RecordBatch]:
    """The rows of one shard in pieces that fit in memory."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(shard) as file:
        yield from file.iter_batches(batch_size=1000)


def _images(path: Path, certificate: Certificate, subset: str, count: int, *, soft: bool) -> Images:
    """The images of one subset, with logits where they are `soft`."""
    import numpy as np
    import torch

    public = certificate.public
    pixels = np.empty((count, public.channels, public.height, public.width), dtype=np.uint8)
    labels = np.empty(count, dtype=np.int64)
    logits = []
    at = 0
    try:
        for shard in layout.shards(path, subset=subset):
            for batch in record_batches(shard):
                for row, png in enumerate(batch.column("image").field("bytes").to_pylist()):
                    pixels[at + row] = layout.decode_png(png, public.channels)
                labels[at : at + len(batch)] = batch.column("label").to_numpy()
                if soft:
                    flat = batch.column("logits").flatten().to_numpy(zero_copy_only=False)
                    logits.append(flat.reshape(len(batch), -1))
                at += len(batch)
        if at != count:
            raise ValueError(f"{at} images in {subset}/ where the certificate states {count}")
    except (ValueError, KeyError, IndexError, RuntimeError, OSError, SyntaxError) as error:
        raise VerificationFailed(
            f"Expected images as the certificate states them, got: {error}.",
            where=path,
            fix="run `sfumato verify` to see all problems",
        ) from error
    kept = torch.from_numpy(np.concatenate(logits)) if logits else None
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels), public.classes, kept)
