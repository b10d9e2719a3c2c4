"""The names of the files in a release folder, and the one way an image is stored."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from sfumato.values import ReleaseKind

if TYPE_CHECKING:  # imported inside the functions that need them
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

SUMS, CERTIFICATE, CARD, PREVIEW = "SHA256SUMS", "certificate.json", "README.md", "preview.png"
WEIGHTS = "model.safetensors"  # of a released classifier
HIDDEN = "hidden.json"  # of images with a hidden attribute, in the place of a certificate
LABEL = "label"  # the column of the class of an image
DATA = "data"  # the folder with the images of the classes
TRANSFER, NETWORK = "transfer", "network"  # folders with further images, which carry logits
FURTHER = (TRANSFER, NETWORK)  # also the names of their fields in `values.Images` and in `Samples`
_SHARD = re.compile(r"(data|transfer|network)/train-([0-9]{5})-of-([0-9]{5})\.parquet")
_EXPORT = re.compile(r"images/[A-Za-z0-9][A-Za-z0-9._-]{0,80}/[0-9]{6,12}\.png")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNKS = (b"IHDR", b"IDAT", b"IEND")
LARGEST_PICTURE = 1 << 26  # pixels, where no size was declared
_PIECE = 1 << 20  # bytes of an image that are inflated at once
_FILTERS = 4  # the last of PNG's ways to write a row


def shard_name(index: int, total: int, *, subset: str = DATA) -> str:
    return f"{subset}/train-{index:05d}-of-{total:05d}.parquet"


def allowed(name: str, kind: ReleaseKind) -> bool:
    """Whether a release of this kind may hold a file of this name."""
    if name in (SUMS, CARD, HIDDEN if kind == "hidden-images" else CERTIFICATE):
        return True
    if kind == "model":
        return name == WEIGHTS
    if kind == "hidden-images":
        return name == PREVIEW or (name.startswith(f"{DATA}/") and _SHARD.fullmatch(name) is not None)
    return name == PREVIEW or _SHARD.fullmatch(name) is not None or exported(name)


def holds_hidden_images(folder: Path) -> bool:
    """Whether this is a release of images with a hidden attribute, whatever else lies in it."""
    return os.path.lexists(folder / HIDDEN)


def exported(name: str) -> bool:
    return _EXPORT.fullmatch(name) is not None


def shards(folder: Path, *, subset: str = DATA) -> list[Path]:
    """The Parquet files of a subset in order; links and pipes are left out."""
    found = (folder / subset).glob("*.parquet")
    return sorted(p for p in found if _SHARD.fullmatch(f"{subset}/{p.name}") and regular(p))


def regular(path: Path) -> bool:
    """Whether this is a regular file: opening a pipe would block, and a link may point outside."""
    return stat.S_ISREG(path.lstat().st_mode)


def read_regular(path: Path, *, most: int) -> bytes:
    """The bytes of a file that anyone may have put there."""
    if not regular(path):
        raise ValueError(f"{path.name} is not a regular file")
    with path.open("rb") as file:
        contents = file.read(most + 1)
    if len(contents) > most:
        raise ValueError(f"{path.name} is larger than {most} bytes")
    return contents


def class_folders(classes: Sequence[str]) -> list[str]:
    """Folder names for classes: readable, safe on every file system, and all different."""
    names: list[str] = []
    taken: set[str] = set()
    for index, name in enumerate(classes):
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:60]
        reserved = re.fullmatch(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])?", safe) is not None
        if reserved or safe.lower() in taken:
            safe = f"class-{index}" if not safe else f"{safe}-{index}"
        while safe.lower() in taken:
            safe += "-x"
        taken.add(safe.lower())
        names.append(safe)
    return names


def parquet_schema(labels: Mapping[str, Sequence[str]], logits: int | None = None) -> pa.Schema:
    """The Hugging Face image layout: image bytes, columns of labels with their classes, and perhaps logits."""
    import pyarrow as pa

    fields = [pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))]
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    for name, classes in labels.items():
        fields.append(pa.field(name, pa.int64()))
        features[name] = {"names": list(classes), "_type": "ClassLabel"}
    if logits is not None:
        fields.append(pa.field("logits", pa.list_(pa.field("element", pa.float32()), logits)))
        features["logits"] = {
            "feature": {"dtype": "float32", "_type": "Value"},
            "length": logits,
            "_type": "Sequence",
        }
    return pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": features}})})


def disagreeing(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows whose label is not what the logits say; of equal logits any may be the label."""
    import numpy as np

    return np.flatnonzero(logits[np.arange(len(labels)), labels] < logits.max(1))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """One image (c, h, w) as PNG that holds pixels and nothing else."""
    picture = Image.fromarray(pixels[0]) if pixels.shape[0] == 1 else Image.fromarray(pixels.transpose(1, 2, 0))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def decode_png(png: bytes, *, channels: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The pixels (c, h, w) of an image that `encode_png` wrote; anything else is refused before it is decoded."""
    import numpy as np

    problem = png_problem(png, channels=channels, size=size)
    if problem:
        raise ValueError(f"an image that {problem}")
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
            pixels = np.asarray(picture)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from None
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def png_problem(png: bytes, *, channels: int, size: tuple[int, int] | None) -> str | None:
    """The first way in which this is not a plain picture of (height, width); None if it is one.

    It is inflated completely, a piece at a time, and must give exactly its pixels: nothing can be hidden after them.
    """
    if not png.startswith(_SIGNATURE):
        return "is not a PNG"
    try:
        kinds, header, body = _png_parts(png)
        if kinds and kinds[-1] not in _CHUNKS:
            return f"has a {kinds[-1].decode('latin-1')!r} chunk, which can carry more than pixels"
        width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", header)
    except (ValueError, struct.error) as error:
        return f"is a broken PNG ({error})"
    if kinds[0] != b"IHDR" or kinds[-1] != b"IEND" or kinds.count(b"IHDR") + kinds.count(b"IEND") != 2:
        return "is a broken PNG (chunks out of order)"
    if (depth, colour, rest) != (8, 0 if channels == 1 else 2, [0, 0, 0]):
        return f"is not an 8-bit picture of {channels} channels"
    return _size_problem(height, width, size) or _body_problem(body, height, 1 + width * channels)


def _png_parts(png: bytes) -> tuple[list[bytes], bytes, bytes]:
    """The chunks' kinds in their order, the header, and the compressed pixels; a checksum that is wrong is refused.

    Reading stops at a chunk that a plain picture does not have; its kind is then the last one.
    """
    kinds: list[bytes] = []
    header = b""
    body: list[bytes] = []
    for kind, data in _chunks(png):
        kinds.append(kind)
        if kind not in _CHUNKS:
            break
        if kind == b"IDAT":
            body.append(data)
        elif kind == b"IHDR":
            header = data
    return kinds, header, b"".join(body)


def _size_problem(height: int, width: int, size: tuple[int, int] | None) -> str | None:
    if size is not None and (height, width) != size:
        return f"is {height}x{width} where {size[0]}x{size[1]} was declared"
    if size is None and height * width > LARGEST_PICTURE:
        return f"is {height}x{width}, larger than {LARGEST_PICTURE:,} pixels"
    return None


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        data = png[at + 8 : at + 8 + length]
        (stated,) = struct.unpack_from(">I", png, at + 8 + length)
        if zlib.crc32(data, zlib.crc32(kind)) != stated:
            raise ValueError("wrong checksum in a chunk")
        yield kind, data
        at += 12 + length
        if kind == b"IEND" and (length or at != len(png)):
            raise ValueError("bytes after its end")


def _body_problem(body: bytes, height: int, row: int) -> str | None:
    """Whether a zlib stream is `height` rows of so many bytes, each of which begins with the number of its filter."""
    at = 0
    try:
        for piece in _inflated(body):
            if at + len(piece) > height * row:
                return "holds more bytes than its pixels"
            if max(piece[-at % row :: row], default=0) > _FILTERS:
                return "is a broken PNG (a row has an unknown filter)"
            at += len(piece)
    except (zlib.error, ValueError) as error:
        return f"does not decompress ({error})"
    return None if at == height * row else "holds fewer bytes than its pixels"


def _inflated(body: bytes) -> Iterator[bytes]:
    """A zlib stream in pieces, however much it inflates to; it must end where its bytes do, with its checksum."""
    unpacker = zlib.decompressobj()
    for start in range(0, len(body), _PIECE):
        if unpacker.eof:
            break
        piece = unpacker.decompress(body[start : start + _PIECE], _PIECE)
        while piece:
            yield piece
            piece = unpacker.decompress(unpacker.unconsumed_tail, _PIECE)
        end = start + _PIECE
    if not unpacker.eof:
        raise ValueError("it ends too early")
    if unpacker.unused_data or end < len(body):
        raise ValueError("there are bytes behind its end")
