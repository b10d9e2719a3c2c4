"""Parquet in the Hugging Face image layout: one file, or a folder of train and test shards; also Sfumato's releases."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from sfumato.contracts import Reading
from sfumato.data._decode import Unreadable
from sfumato.data._labels import from_numbers, from_words, in_order, number_numbers, number_words
from sfumato.data._layout import layout
from sfumato.data._reader import HasAttributes, check_split
from sfumato.data._records import ImageRecords, Opener
from sfumato.errors import DataError, UsageError, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGE_COLUMNS = ("image", "img")
_BATCH = 64  # rows decoded at a time
_SHARD = re.compile(r"^(?P<split>[a-z]+)[-._](?:(?P<number>\d{5})-of-(?P<total>\d{5}))?")


class Parquet(ImageRecords, HasAttributes):
    """A column `image` of bytes, or of bytes and path (the path is never followed), and a column `label`.

    Labels are numbers, named by the `huggingface` metadata where it is there, or words. A single file is `train`.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "parquet"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return tuple(_shards(Path(where)))

    @classmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        return _labelling(next(iter(_shards(Path(where)).values()))[0])

    def __init__(self, where: str, reading: Reading) -> None:
        path = Path(where)
        self._splits = shards = _shards(path)
        check_split(reading.split, tuple(shards), where=where)
        self._shards = shards[reading.split]
        self._image, label = _columns(self._shards[0], reading.label)
        names = _class_names(self._shards[0], label)
        own, every = self._written(label)
        self._unlabelled = {number for number, value in enumerate(own) if value is None}
        if all(isinstance(value, int) for value in every):
            classes = from_numbers(_whole(every, where), names, reading.classes, where=where) if own else ()
            labels = number_numbers(_whole([-1 if v is None else v for v in own], where), names, classes)
        else:
            words = [None if value is None else str(value) for value in own]
            classes = from_words(map(str, every), reading.classes or names, where=where)
            labels = number_words(words, classes)
        self._settle(where, reading, name=path.resolve().stem, classes=classes, labels=labels)

    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        own, every = self._written(name)
        names = _class_names(self._shards[0], name)
        if names is not None and all(isinstance(value, int) for value in every):
            return names, number_numbers(_whole([-1 if v is None else v for v in own], self._where), names, names)
        values = in_order({str(value) for value in every})
        return values, number_words([None if value is None else str(value) for value in own], values)

    def _written(self, label: str) -> tuple[list[int | str | None], list[int | str]]:
        """The column of this split, and what is in that column in all splits together."""
        written = [v for shard in self._shards for v in _labels(shard, label)]
        others = [
            v for files in self._splits.values() if files != self._shards for f in files for v in _labels(f, label)
        ]
        return written, [v for v in [*written, *others] if v is not None]

    def logits(self) -> NDArray[np.float32] | None:
        """A release's soft labels, (n, k), where it has them."""
        if "logits" not in _schema(self._shards[0]).names:
            return None
        with _reading(self._shards[0]):
            columns = [_file(shard).read(columns=["logits"])["logits"].to_pylist() for shard in self._shards]
            return np.array([row for column in columns for row in column], dtype=np.float32)

    def _streams(self) -> Iterator[tuple[str, Opener]]:
        number = 0
        for shard in self._shards:
            with _reading(shard):
                batches = _file(shard).iter_batches(batch_size=_BATCH, columns=[self._image], use_threads=False)
                row = 0
                for batch in batches:
                    for value in batch.column(0):
                        yield f"{shard.name} row {row}", self._opener(number, value)
                        row, number = row + 1, number + 1

    def _opener(self, number: int, value: Any) -> Opener:
        def opened() -> BinaryIO:
            if number in self._unlabelled:
                raise Unreadable("no label in its row")
            held = value.as_py()
            encoded = held.get("bytes") if isinstance(held, dict) else held
            if not isinstance(encoded, bytes):
                raise Unreadable("no image bytes in its row")
            return io.BytesIO(encoded)

        return opened


def _shards(path: Path) -> dict[str, list[Path]]:
    if path.is_file():
        return {"train": [path]}
    found = sorted(p for folder in (path, path / "data") for p in folder.glob("*.parquet") if p.name[0] != ".")
    for shard in found:
        if not shard.is_file():  # a FIFO would wait for ever
            raise DataError(
                f"Expected a regular file, got something else: {printable(shard.name)}.", where=path, fix="remove it"
            )
    splits = {
        split: [p for p in found if p.stem == split or ((m := _SHARD.match(p.name)) and m["split"] == split)]
        for split in ("train", "test")
    }
    if not any(splits.values()):
        splits["train"] = found
    for shards in splits.values():
        _check_complete(shards, path)
    return {split: shards for split, shards in splits.items() if shards}


def _check_complete(shards: list[Path], path: Path) -> None:
    numbered = [match for p in shards if (match := _SHARD.match(p.name)) and match["total"]]
    for match in numbered[:1]:
        total, there = int(match["total"]), {int(m["number"]) for m in numbered}
        if len(numbered) != total or there != set(range(total)):
            raise DataError(
                f"Expected {total} shards like {printable(match.string)}, got {len(numbered)}.",
                where=path,
                fix="add the missing shards, or remove those of another version",
            )


def _columns(shard: Path, label: str | None) -> tuple[str, str]:
    import pyarrow as pa

    schema = _schema(shard)
    image = next((name for name in _IMAGE_COLUMNS if name in schema.names), None)
    kind: Any = schema.field(image).type if image else pa.null()
    if pa.types.is_struct(kind):
        kind = kind.field("bytes").type if kind.get_field_index("bytes") >= 0 else pa.null()
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise DataError(
            f"Expected a column image of encoded images, got {printable(', '.join(schema.names))[:200]}.",
            where=shard,
            fix="save the images in the Hugging Face layout, struct<bytes, path>",
        )
    wanted = label or "label"
    if wanted not in schema.names:
        others = ", ".join(name for name in schema.names if name != image)
        raise UsageError(
            f"Expected a label column, one of {printable(others)[:200] or 'none'}; got '{printable(wanted)}'.",
            where=shard,
            fix="name the column with --label",
        )
    return str(image), wanted


def _labelling(shard: Path) -> tuple[str, ...]:
    """The columns that can hold labels."""
    import pyarrow as pa

    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    return tuple(field.name for field in _schema(shard) if any(kind(field.type) for kind in kinds))


def _class_names(shard: Path, label: str) -> tuple[str, ...] | None:
    try:
        facts = json.loads((_schema(shard).metadata or {})[b"huggingface"])
        names = facts["info"]["features"][label]["names"]
        return tuple(map(str, names)) if isinstance(names, list) and names else None
    except (KeyError, TypeError, ValueError):  # no such metadata, or not the kind we know
        return None


def _labels(shard: Path, label: str) -> list[int | str | None]:
    with _reading(shard):
        values: list[Any] = _file(shard).read(columns=[label])[label].to_pylist()
    for value in values:
        if value is not None and type(value) not in (int, str):
            raise DataError(
                f"Expected labels that are whole numbers or words, got {type(value).__name__}.",
                where=f"{shard}: {label}",
                fix="save the labels as whole numbers 0, 1, 2, ... or as words",
            )
    return values


def _whole(values: list[Any], where: str) -> NDArray[np.int64]:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise DataError(
            "Expected labels 0, 1, 2, ..., got a number beyond 64 bits.",
            where=where,
            fix="number the classes 0, 1, 2, ...",
        ) from error


def _schema(shard: Path) -> Any:
    with _reading(shard):
        return _file(shard).schema_arrow


def _file(shard: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(shard)


@contextmanager
def _reading(shard: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(
            f"Expected a Parquet file, got one that cannot be read ({printable(str(error).splitlines()[0])[:100]}).",
            where=shard,
            fix="download or write it again",
        ) from error
