"""Read the rows of a Parquet shard, after a check that the whole file has the form that our writer gives it.

A Parquet file of some kilobytes can unpack to gigabytes: compressed, from a dictionary, in runs, as nulls that take no
bytes, or by many row groups that share their bytes. The footer need not show it, because readers use the header of each
page. So pages must be plain and uncompressed by their own headers, they must fill the file without gaps or overlaps,
and every row must have bytes of its own.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from sfumato.errors import printable
from sfumato.release.compact import Compact

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_ROWS = 1000  # rows of a group: what a streaming reader holds at once
SMALLEST_ROW = 64 + 8  # bytes: a PNG of one pixel is larger than 64, a label takes 8
# PNG does not compress further, and plain pages keep the bytes the same for everyone.
WRITTEN: dict[str, Any] = {"compression": "none", "use_dictionary": False}
_MAGIC = b"PAR1"
_KEYS = {b"huggingface", b"ARROW:schema"}
_VALUES = 400  # of a row group in the footer; four columns have less than half of that
_COLUMN_VALUES = 100  # of a further column there
_SCHEMA_BYTES, _GROUP_BYTES = 1 << 20, 1 << 16  # of the footer: beside the class names, and for a row group
_HEADER_BYTES = 1 << 16  # of a page; its statistics hold a smallest and a largest value of up to 4096 bytes
# Numbers of the Parquet format. They are read here and not by pyarrow, which ends the process at an unknown codec.
_UNCOMPRESSED, _DATA_PAGE, _PLAIN, _RLE = 0, 0, 0, 3
_ROWS, _GROUPS, _FILE_PATH, _CHUNK_META, _DICTIONARY_OFFSET = 3, 4, 1, 3, 11


class _Problem(Exception):
    """How a shard differs from those that our writer makes, as the rest of a sentence."""


class _Column(NamedTuple):
    name: str
    width: int  # bytes of a value, where all have the same
    values: int = 1  # of a row


def record_batches(shard: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one shard in pieces that fit in memory; a shard with a problem is refused before any is decoded."""
    import pyarrow.parquet as pq

    problem = shard_problem(shard, schema)
    if problem:
        raise ValueError(problem)
    with pq.ParquetFile(shard) as file:
        yield from file.iter_batches(batch_size=GROUP_ROWS)


def shard_rows(shard: Path, schema: pa.Schema) -> int:
    """How many rows a shard has, where it has no problem."""
    import pyarrow.parquet as pq

    problem = shard_problem(shard, schema)
    if problem:
        raise ValueError(problem)
    with pq.ParquetFile(shard) as file:
        return int(file.metadata.num_rows)


def shard_problem(shard: Path, schema: pa.Schema) -> str | None:
    """The first difference from a shard that our writer makes with these columns; decodes no page."""
    import pyarrow.parquet as pq

    try:
        with shard.open("rb") as raw:
            footer, start = _footer(raw, schema)
            with pq.ParquetFile(shard) as file:
                _check_columns(file, schema)
            _check_groups(raw, footer, schema, start)
    except _Problem as problem:
        return f"{shard.name} {printable(problem)}"
    except Exception as error:  # noqa: BLE001  # a hostile file can make a reader raise anything
        return f"{shard.name} could not be read ({type(error).__name__}: {printable(error)[:200]})"
    return None


def _footer(raw: BinaryIO, schema: pa.Schema) -> tuple[dict[int, Any], int]:
    """The footer and where it begins, once it is known to hold no more than the row groups of such a file need."""
    size = os.fstat(raw.fileno()).st_size
    raw.seek(max(0, size - 8))
    tail = raw.read(8)
    length = int.from_bytes(tail[:4], "little")
    raw.seek(0)
    if size < 12 or raw.read(4) != _MAGIC or tail[4:] != _MAGIC or length > size - 12:
        raise _Problem("is no Parquet file, or is cut")
    groups = 1 + size // (GROUP_ROWS * SMALLEST_ROW)  # all but the last are full
    names = sum(map(len, (schema.metadata or {}).values()))
    if length > _SCHEMA_BYTES + 4 * names + _GROUP_BYTES * groups:
        raise _Problem(f"has a footer of {length} bytes, more than {groups} row groups need")
    raw.seek(size - 8 - length)
    values = _VALUES + _COLUMN_VALUES * max(0, len(schema) - 3)
    reader = Compact(raw.read(length), most=values * (1 + groups))
    try:
        footer = reader.struct()
    except ValueError as error:
        raise _Problem(f"has a broken footer: {error}") from None
    if reader.at != length:
        raise _Problem("has bytes behind its footer")
    return footer, size - 8 - length


def _check_groups(raw: BinaryIO, footer: dict[int, Any], schema: pa.Schema, end: int) -> None:
    columns = _columns(schema)
    at = len(_MAGIC)
    rows = 0
    for group in footer[_GROUPS]:
        chunks, count = group[1], group[3]
        if not 0 < count <= GROUP_ROWS:
            raise _Problem(f"has a row group of {count} rows, where 1 to {GROUP_ROWS} are allowed")
        if len(chunks) != len(columns):
            raise _Problem(f"has {len(chunks)} columns in a row group, where {len(columns)} belong there")
        for column, chunk in zip(columns, chunks, strict=True):
            at = _check_chunk(raw, column, chunk, at, end, count * column.values)
        rows += count
    if at != end or rows != footer[_ROWS]:
        raise _Problem("has bytes or rows that belong to no row group")


def _columns(schema: pa.Schema) -> list[_Column]:
    """The columns of a row group: an image is two, and all others hold numbers."""
    columns = [_Column("image.bytes", 0), _Column("image.path", 0)]
    for field in list(schema)[1:]:
        soft = field.name == "logits" and hasattr(field.type, "list_size")
        columns.append(_Column(field.name, 4, field.type.list_size) if soft else _Column(field.name, 8))
    return columns


def _check_chunk(raw: BinaryIO, column: _Column, chunk: dict[int, Any], start: int, end: int, values: int) -> int:
    """Where a column of a row group ends, after the headers of its pages were compared with what the footer says."""
    meta = chunk[_CHUNK_META]
    encodings, codec, stated, size, packed, offset = (meta[field] for field in (2, 4, 5, 6, 7, 9))
    if codec != _UNCOMPRESSED or size != packed:
        raise _Problem("is compressed; a release's shards are not, so that none can be a bomb")
    if _DICTIONARY_OFFSET in meta or not set(encodings) <= {_PLAIN, _RLE}:
        raise _Problem(f"has {column.name} in another encoding than plain")
    stop = start + int(size)
    if _FILE_PATH in chunk or offset != start or not start <= stop <= end:
        raise _Problem("has row groups with gaps between them or with bytes in common")
    if stated != values:
        raise _Problem(f"has {stated} values of {column.name} for {values} places")
    at = start
    found = 0
    while at < stop:
        at, count = _check_page(raw, at, stop, column.width)
        found += count
    if found != values:
        raise _Problem(f"has pages with {found} values where its footer states {values}")
    return stop


def _check_page(raw: BinaryIO, at: int, stop: int, width: int) -> tuple[int, int]:
    """Where a page ends, and how many values it states."""
    raw.seek(at)
    reader = Compact(raw.read(min(_HEADER_BYTES, stop - at)), most=_VALUES)
    try:
        page = reader.struct()
        header = page[5] if page[1] == _DATA_PAGE else {}
        plain = [header.get(field) for field in (2, 3, 4)] == [_PLAIN, _RLE, _RLE]
        size, packed, count = int(page[2]), int(page[3]), int(header.get(1, 0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _Problem(f"has a page with a broken header ({error})") from None
    if not plain:
        raise _Problem("has pages in another encoding than plain, whatever its footer states")
    after = at + reader.at + size
    if size != packed or size < 0 or after > stop:
        raise _Problem("has a page of another size than its bytes")
    if count < 0 or count * width > size:
        raise _Problem(f"has a page that states {count} values in {size} bytes: rows without bytes of their own")
    return after, count


def _check_columns(file: pq.ParquetFile, expected: pa.Schema) -> None:
    import pyarrow.parquet as pq

    meta = file.metadata
    schema = file.schema_arrow
    strange = sorted(set(schema.names) - set(expected.names))
    if strange:
        raise _Problem(f"has a column {strange[0]!r} that does not belong there")
    empty = io.BytesIO()
    pq.ParquetWriter(empty, expected, **WRITTEN).close()
    # Several types of Parquet become the same type of Arrow, so both are compared.
    same = schema.equals(expected, check_metadata=True) and meta.schema.equals(pq.read_metadata(empty).schema)
    if not same:
        raise _Problem("has other columns, types, class names or metadata than are stated")
    if set(meta.metadata or {}) - _KEYS:
        raise _Problem("has metadata that does not belong there")
