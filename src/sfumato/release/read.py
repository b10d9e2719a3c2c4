"""Read a release back, in row groups, once its sums hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout
from sfumato.release.certificate import read_certificate
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
    return Release(path, certificate.model_dump(mode="json"), _images(path))


def record_batches(shard: Path) -> Iterator[pa.RecordBatch]:
    """The rows of one shard in pieces that fit in memory."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(shard) as file:
        yield from file.iter_batches(batch_size=1000)


def _images(path: Path) -> Images:
    import torch

    certificate = read_certificate(path)
    public, count = certificate.public, certificate.samples.count
    pixels = torch.empty((count, public.channels, public.height, public.width), dtype=torch.uint8)
    labels = torch.empty(count, dtype=torch.int64)
    logits: list[torch.Tensor] = []
    at = 0
    try:
        for shard in layout.shards(path):
            for batch in record_batches(shard):
                for row, png in enumerate(batch.column("image").field("bytes").to_pylist()):
                    pixels[at + row] = torch.from_numpy(layout.decode_png(png, public.channels).copy())
                labels[at : at + len(batch)] = torch.tensor(batch.column("label").to_pylist())
                if certificate.samples.has_logits:
                    flat = batch.column("logits").flatten().to_numpy(zero_copy_only=False)
                    logits.append(torch.from_numpy(flat.copy()).reshape(len(batch), -1))
                at += len(batch)
        if at != count:
            raise ValueError(f"{at} images where the certificate states {count}")
    except (ValueError, KeyError, IndexError, RuntimeError, OSError, SyntaxError) as error:
        raise VerificationFailed(
            f"Expected images as the certificate states them, got: {error}.",
            where=path,
            fix="run `sfumato verify` to see all problems",
        ) from error
    return Images(pixels, labels, public.classes, torch.cat(logits) if logits else None)
