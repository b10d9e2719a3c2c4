"""The weights of a released classifier in one file: safetensors, 32-bit numbers, and nothing beside them.

For given names and shapes there is one header, and the numbers follow it in the order of the names. So a file is
checked by comparing its header byte by byte with that one: metadata, spaces, keys that stand there twice, offsets that
overlap or leave gaps and other types all differ from it, and no parser ever sees bytes that somebody else wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.release import layout
from sfumato.release.certificate import TensorFacts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BYTES = 4  # of a number
_ALIGNED = 8  # the header is filled up with spaces to a multiple of this, as the format's own writer does
_PIECE = 1 << 20  # numbers that are looked at together


def header(tensors: Sequence[TensorFacts]) -> bytes:
    """The first bytes of the file, up to the first number: a length, and the places of the tensors as JSON."""
    places: dict[str, dict[str, Any]] = {}
    at = 0
    for tensor in tensors:
        end = at + _BYTES * tensor.size
        places[tensor.name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text


def file_bytes(tensors: Sequence[TensorFacts], values: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The whole file."""
    return header(tensors) + b"".join(values[tensor.name].astype("<f4").tobytes() for tensor in tensors)


def file_problem(path: Path, tensors: Sequence[TensorFacts]) -> str | None:
    """Where a file is not one of these tensors; the numbers themselves are not looked at."""
    if not layout.regular(path):
        return "is not a regular file"
    expected = header(tensors)
    with path.open("rb") as file:
        found = file.read(len(expected))  # whatever length it states, no more than this is read
        size = os.fstat(file.fileno()).st_size
    if found != expected:
        return f"has another header than the certificate's tensors give ({_difference(found, expected)})"
    whole = len(expected) + _BYTES * sum(tensor.size for tensor in tensors)
    if size != whole:
        return f"has {size:,} bytes where the certificate's tensors need {whole:,}"
    return None


def _difference(found: bytes, expected: bytes) -> str:
    if found[:8] != expected[:8]:
        stated, needed = (int.from_bytes(text[:8], "little") for text in (found, expected))
        return f"of {stated:,} bytes in place of {needed:,}"
    pairs = zip(found, expected, strict=False)
    at = next((k for k, (one, other) in enumerate(pairs) if one != other), len(found))
    return f"from byte {at}"


def values_problem(path: Path) -> str | None:
    """Whether a file that has its header holds a number that is not finite."""
    import numpy as np

    for start, piece in _pieces(path):
        strange = np.flatnonzero(~np.isfinite(piece))
        if strange.size:
            return f"has a value that is not finite (number {start + int(strange[0])})"
    return None


def read_tensors(path: Path, tensors: Sequence[TensorFacts]) -> dict[str, NDArray[np.float32]]:
    """The tensors of a file by name; one that is not of these tensors, or not finite, is refused."""
    import numpy as np

    problem = file_problem(path, tensors) or values_problem(path)
    if problem:
        raise ValueError(f"{path.name} {problem}")
    numbers = np.concatenate([piece for _, piece in _pieces(path)]).astype(np.float32)
    ends = np.cumsum([tensor.size for tensor in tensors])[:-1]
    parts = np.split(numbers, ends)
    return {tensor.name: part.reshape(tensor.shape) for tensor, part in zip(tensors, parts, strict=True)}


def _pieces(path: Path) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The numbers behind the header in pieces that fit in memory, each with the number of its first."""
    import numpy as np

    with path.open("rb") as file:
        file.seek(int.from_bytes(file.read(8), "little"), os.SEEK_CUR)
        start = 0
        while read := file.read(_BYTES * _PIECE):
            yield start, np.frombuffer(read, dtype="<f4")
            start += len(read) // _BYTES
