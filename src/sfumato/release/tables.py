"""Images with their labels as arrays: written as Parquet shards, and read back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout
from sfumato.release.shards import GROUP_ROWS, WRITTEN, record_batches, shard_rows
from sfumato.release.subset import Subset

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

SHARD_BYTES = 256 << 20  # of pixels before compression
_INFLATED = 1032  # bytes that deflate can make of one


class Table(NamedTuple):
    """The images of a subset."""

    pixels: NDArray[np.uint8]  # (n, c, h, w)
    labels: dict[str, NDArray[np.int64]]  # (n,) each
    logits: NDArray[np.float32] | None = None  # (n, k)

    def rows(self, part: slice) -> Table:
        labels = {name: values[part] for name, values in self.labels.items()}
        return Table(self.pixels[part], labels, None if self.logits is None else self.logits[part])


def array(tensor: Any, dtype: str) -> Any:
    """A tensor as an array of this type; one of another type is refused and not converted."""
    found = tensor.detach().cpu().numpy()
    if found.dtype != dtype:
        raise UsageError(f"Expected images with {dtype} here, got {found.dtype}.")
    return found


def write_table(work: Path, subset: Subset, table: Table) -> None:
    """The shards of a subset, in a folder of their own."""
    (work / subset.name).mkdir()
    rows = max(1, SHARD_BYTES // max(1, table.pixels[0].size))
    total = -(-len(table.pixels) // rows)
    for index in range(total):
        path = work / layout.shard_name(index, total, subset=subset.name)
        _write_shard(path, table.rows(slice(index * rows, (index + 1) * rows)), subset.schema)


def _write_shard(path: Path, table: Table, schema: pa.Schema) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        with pq.ParquetWriter(file, schema, **WRITTEN) as writer:
            for start in range(0, len(table.pixels), GROUP_ROWS):
                part = table.rows(slice(start, start + GROUP_ROWS))
                rows = [{"bytes": layout.encode_png(p), "path": None} for p in part.pixels]
                columns = [pa.array(rows, schema.field("image").type), *map(pa.array, part.labels.values())]
                if part.logits is not None:
                    flat = pa.array(part.logits.ravel())
                    columns.append(pa.FixedSizeListArray.from_arrays(flat, type=schema.field("logits").type))
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        file.flush()
        os.fsync(file.fileno())


def read_table(folder: Path, subset: Subset) -> Table:
    """The images of a subset, in row groups; what differs from what is stated of them is refused."""
    try:
        return _read_table(folder, subset)
    except (ValueError, KeyError, IndexError, RuntimeError, OSError, SyntaxError) as error:
        raise VerificationFailed(
            f"Expected images as {subset.stated_in} states them, got: {error}.",
            where=folder,
            fix="run `sfumato verify` to see all problems",
        ) from error


def _read_table(folder: Path, subset: Subset) -> Table:
    import numpy as np

    schema, count, shape = subset.schema, subset.count, subset.shape
    shards = layout.shards(folder, subset=subset.name)
    rows = sum(shard_rows(shard, schema) for shard in shards)
    if rows != count:
        raise ValueError(f"{rows} images in {subset.name}/ where {subset.stated_in} states {count}")
    _refuse_impossible(shards, count, prod(shape))
    pixels = np.empty((count, *shape), dtype=np.uint8)
    labels = {name: np.empty(count, dtype=np.int64) for name in subset.labels}
    logits = None if subset.logits is None else np.empty((count, subset.logits), dtype=np.float32)
    at = 0
    for batch in (batch for shard in shards for batch in record_batches(shard, schema)):
        for row, png in enumerate(batch.column("image").field("bytes").to_pylist()):
            pixels[at + row] = layout.decode_png(png or b"", channels=shape[0], size=subset.size)
        for name, values in labels.items():
            values[at : at + len(batch)] = batch.column(name).to_numpy()
        if logits is not None:
            flat = batch.column("logits").flatten().to_numpy(zero_copy_only=False)
            logits[at : at + len(batch)] = flat.reshape(len(batch), -1)
        at += len(batch)
    return Table(pixels, labels, logits)


def _refuse_impossible(shards: Sequence[Path], count: int, pixel_bytes: int) -> None:
    """Refuse more pixels than the files can hold, before memory is allocated for them."""
    size = sum(shard.stat().st_size for shard in shards)
    if count * pixel_bytes > _INFLATED * size:
        raise ValueError(f"{count} images of {pixel_bytes} bytes each, which cannot be in files of {size} bytes")
