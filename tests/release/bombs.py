"""Small files that unpack to much memory: shards whose footer states it, shards whose footer is false, and images."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from release.making import CLASSES
from sfumato.release import layout

PLAIN = {"compression": "none", "use_dictionary": False}
SCHEMA = layout.parquet_schema({"label": CLASSES})
_BINARY, _LIST, _STRUCT, _I16, _I64 = 8, 9, 12, 4, 6


def png(height: int, width: int, *, body: bytes | None = None, header: tuple[int, int] | None = None) -> bytes:
    """A black grey picture; its header may state another size than its body has."""
    rows = zlib.compress(bytes(height * (1 + width)), 9) if body is None else body
    stated = header or (height, width)
    head = struct.pack(">IIBBBBB", stated[1], stated[0], 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")]
    parts = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def table(picture: bytes | None, rows: int, *, label: int | None = 0) -> pa.Table:
    """The same row over and over."""
    pictures = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(picture, pa.binary()), rows), pa.nulls(rows, pa.string())],
        fields=list(SCHEMA.field("image").type),
    )
    return pa.table([pictures, pa.repeat(pa.scalar(label, pa.int64()), rows)], schema=SCHEMA)


def shard(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{"row_group_size": 1 << 30, **options})
    return sink.getvalue()


class Thrift:
    """Structures in Thrift's compact protocol as lists of (number, kind, value), so that they can be written again."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def value(self, kind: int) -> Any:
        if kind in (1, 2):
            return None
        if _I16 <= kind <= _I64:
            return self.number()
        if kind == _BINARY:
            length = self.number()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind == _LIST:
            head = self.number() if self.data[self.at] < 128 else self.data[self.at]
            self.at += self.data[self.at] >= 128
            size = head >> 4
            size = self.number() if size == 15 else size
            return (head & 15, [self.value(head & 15) for _ in range(size)])
        assert kind == _STRUCT, kind
        return self.struct()

    def struct(self) -> dict[int, tuple[int, Any]]:
        fields, last = {}, 0
        while head := self.data[self.at]:
            self.at += 1
            assert head >> 4, "no long fields here"
            last += head >> 4
            fields[last] = (head & 15, self.value(head & 15))
        self.at += 1
        return fields


def _number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _written(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if _I16 <= kind <= _I64:
        return _number(value)
    if kind == _BINARY:
        return _number(len(value)) + value
    if kind == _LIST:
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _number(len(items))
        return head + b"".join(_written(inner, item) for item in items)
    out, last = b"", 0
    for field, (inner, item) in sorted(value.items()):
        out, last = out + bytes([(field - last) << 4 | inner]) + _written(inner, item), field
    return out + b"\0"


def with_footer(contents: bytes, change: Callable[[dict[int, Any]], object]) -> bytes:
    """The file with a footer that was edited."""
    length = int.from_bytes(contents[-8:-4], "little")
    footer = Thrift(contents, len(contents) - 8 - length).struct()
    change(footer)
    raw = _written(_STRUCT, footer)
    return contents[: -8 - length] + raw + struct.pack("<I", len(raw)) + b"PAR1"


def columns(footer: dict[int, Any]) -> list[dict[int, Any]]:
    """What the footer says of every column of every row group."""
    return [column[3][1] for group in footer[4][1][1] for column in group[1][1][1]]


def _all_say_plain(footer: dict[int, Any]) -> None:
    for column in columns(footer):
        column[2] = (_LIST, (5, [0, 6]))  # encodings: plain and, for levels, runs (numbers are stored doubled)
        column.pop(13, None)  # how many pages have which encoding
        if 11 in column:
            column[9] = column.pop(11)  # data begins where the dictionary does


def _again(times: int) -> Callable[[dict[int, Any]], None]:
    """Row groups that share their bytes."""

    def change(footer: dict[int, Any]) -> None:
        kind, groups = footer[4][1]
        footer[4] = (_LIST, (kind, groups * times))
        footer[3] = (_I64, footer[3][1] * times)

    return change


def _large_column(footer: dict[int, Any]) -> None:
    columns(footer)[0][6] = (_I64, 2 << 40)  # uncompressed size: a tebibyte, for a reader that allocates it


def _unknown_codec(footer: dict[int, Any]) -> None:
    columns(footer)[0][4] = (5, 2 * 77)  # pyarrow ends the process when it is asked for its name


def _list_without_end(contents: bytes) -> bytes:
    """A footer that announces nearly a million columns of a row group, and ends."""
    schema = bytes([0x19, 0x1C]) + _written(_STRUCT, {4: (_BINARY, b"schema")})
    raw = bytes([0x15, 4]) + schema + bytes([0x16, 2, 0x19, 0x1C, 0x19, 0xFC]) + _number(999_999)
    return contents[:-8] + raw + struct.pack("<I", len(raw)) + b"PAR1"


def _label_page(contents: bytes, change: Callable[[dict[int, Any]], object]) -> bytes:
    """The file with a label page whose header was edited; the bytes behind it move, and the footer follows."""
    length = int.from_bytes(contents[-8:-4], "little")
    footer = Thrift(contents, len(contents) - 8 - length).struct()
    start = columns(footer)[2][9][1] >> 1
    header = Thrift(contents, start)
    page = header.struct()
    change(page)
    raw = _written(_STRUCT, page)
    moved = len(raw) - (header.at - start)

    def follow(footer: dict[int, Any]) -> None:
        for field in (6, 7):
            columns(footer)[2][field] = (_I64, columns(footer)[2][field][1] + 2 * moved)

    return with_footer(contents[:start] + raw + contents[header.at :], follow)


def _many_values(page: dict[int, Any]) -> None:
    page[5][1][1] = (5, 2 * 30_000_000)


def _large_page(page: dict[int, Any]) -> None:
    page[2] = (5, 2 * ((1 << 31) - 1))


def _in_runs(page: dict[int, Any]) -> None:
    page[5][1][2] = (5, 2 * 3)


def _gap(contents: bytes) -> bytes:
    footer = 8 + int.from_bytes(contents[-8:-4], "little")
    return contents[:-footer] + b"secret" + contents[-footer:]


def _plain() -> bytes:
    return shard(table(png(8, 8), 40), **PLAIN)


def _heavy(rows: int = 1000, *, picture: int = 80_000, **options: Any) -> bytes:
    return shard(table(png(8, 8) + bytes(picture), rows), **{**PLAIN, **options})


_DIFFERENCES = {"image.bytes": "DELTA_BYTE_ARRAY", "image.path": "PLAIN", "label": "DELTA_BINARY_PACKED"}
_LABEL_DIFFERENCES = {"image.bytes": "PLAIN", "image.path": "PLAIN", "label": "DELTA_BINARY_PACKED"}
_LIES = "another encoding than plain, whatever its footer states"

# name: how the shard is made, and what must be said of it
SHARDS: dict[str, tuple[Callable[[], bytes], str]] = {
    "compressed": (lambda: _heavy(300, picture=1 << 20, compression="zstd"), "is compressed"),
    "dictionary": (lambda: _heavy(use_dictionary=True), "another encoding than plain"),
    "dictionary under a footer that says plain": (
        lambda: with_footer(_heavy(use_dictionary=True), _all_say_plain),
        _LIES,
    ),
    "differences": (lambda: _heavy(column_encoding=_DIFFERENCES), "another encoding than plain"),
    "differences under a footer that says plain": (
        lambda: with_footer(_heavy(500, picture=0, column_encoding=_LABEL_DIFFERENCES), _all_say_plain),
        _LIES,
    ),
    "null rows": (
        lambda: shard(table(None, 10_000_000, label=None), **PLAIN),
        "a row group of 10000000 rows",
    ),
    "null rows in a small group": (
        lambda: shard(table(None, 1000, label=None), **PLAIN),
        "rows without bytes of their own",
    ),
    "one label for many rows": (
        lambda: shard(table(None, 5_000_000), compression="none", use_dictionary=["label"]),
        "a row group of 5000000 rows",
    ),
    "row groups that share their bytes": (lambda: with_footer(_plain(), _again(2)), "bytes in common"),
    "many row groups that share their bytes": (lambda: with_footer(_plain(), _again(100)), "more values than"),
    "a large size in the footer": (lambda: with_footer(_plain(), _large_column), "is compressed"),
    "a codec that nobody knows": (lambda: with_footer(_plain(), _unknown_codec), "is compressed"),
    "a large page": (lambda: _label_page(_plain(), _large_page), "a page of another size than its bytes"),
    "a page of many values": (lambda: _label_page(_plain(), _many_values), "30000000 values"),
    "a page in runs": (lambda: _label_page(_plain(), _in_runs), _LIES),
    "a list that announces a million columns": (lambda: _list_without_end(_plain()), "broken footer"),
    "bytes between the pages and the footer": (lambda: _gap(_plain()), "belong to no row group"),
}

# name: the only picture of a shard, and what must be said of it
PICTURES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a picture of another size": (lambda: png(9_500, 9_500), "is 9500x9500 where 8x8 was declared"),
    "a picture that goes on": (
        lambda: png(8, 8, body=zlib.compress(bytes(90_000_000), 9)),
        "more bytes than its pixels",
    ),
    "a header that is too large": (
        lambda: png(8, 8, header=(16_000, 16_000)),
        "is 16000x16000 where 8x8 was declared",
    ),
}


def _of_picture(picture: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: shard(table(picture(), 1), **PLAIN)


SHARDS |= {name: (_of_picture(picture), words) for name, (picture, words) in PICTURES.items()}


def plant(release: Path, contents: bytes) -> int:
    """Put a shard in the place of the only one; its size."""
    (path,) = (release / "data").iterdir()
    return path.write_bytes(contents)
