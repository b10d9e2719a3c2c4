"""What all readers share: an opened split with its public facts, its size rule and its list of bad records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sfumato.contracts import Dataset, Reading
from sfumato.errors import DataError, UsageError, printable
from sfumato.values import Spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST_SIDE = 256  # pixels, where no size is asked for: so that nothing is trained on larger images by accident
LARGEST_SIZE = 1024
CHUNK_BYTES = 8 * 2**20
CHUNK_RECORDS = 4096


class Reader(Dataset):
    """A data set whose splits can be named without opening one."""

    _spec: Spec
    _name: str
    bad: list[tuple[str, str]]  # (name, reason): for the lab's log, never for a release

    @classmethod
    @abstractmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        """Which of `train` and `test` there are, from file names alone."""

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def name(self) -> str:
        return self._name

    @abstractmethod
    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]: ...


class HasAttributes(Reader):
    """A reader of records that have attributes, such as the age and gender of a face; `Reading.label` chooses one."""

    @classmethod
    @abstractmethod
    def attributes(cls, where: str) -> tuple[str, ...]:
        """Their names, without a look at the images."""

    @abstractmethod
    def attribute(self, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """The values of one of them, and each record's place among them, ABSENT where it has none."""

    def called(self, number: int) -> str:
        """What to call a record in an error."""
        return f"record {number}"


def check_reading(reading: Reading) -> None:
    """Refuse a size that no image can have."""
    if reading.size is not None and not 1 <= reading.size <= LARGEST_SIZE:
        raise UsageError(f"Expected a size of 1 to {LARGEST_SIZE} pixels, got {reading.size}.", fix="try --size 64")


def check_split(split: str, there: Sequence[str], *, where: object) -> None:
    """Refuse a split that is not there."""
    if split not in there:
        raise DataError(
            f"Expected a {split} split, got only {' and '.join(there) or 'none'}.",
            where=where,
            fix=f"add the {split} images, or ask for another split",
        )


def check_side(height: int, width: int, size: int | None, *, where: object) -> tuple[int, int]:
    """Height and width of the images as they will be; refuses large ones where no size is asked for."""
    if size is not None:
        return size, size
    if max(height, width) > LARGEST_SIDE:
        raise DataError(
            f"Expected images of at most {LARGEST_SIDE} pixels a side, got {width} x {height}.",
            where=where,
            fix="resize them while reading, for example with --size 64",
        )
    return height, width


def rows_per_chunk(bytes_per_row: int) -> int:
    """How many records make a chunk that is small beside any machine's memory."""
    return max(1, min(CHUNK_RECORDS, CHUNK_BYTES // max(1, bytes_per_row)))


def refuse_bad(bad: Sequence[tuple[str, str]], count: int, *, where: object) -> None:
    """One error for all bad records: the first three by name, and how many there are."""
    if bad:
        shown = "; ".join(f"{printable(name)[:150]} ({printable(reason)})" for name, reason in bad[:3])
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise DataError(
            f"Expected {count} readable images, got {len(bad)} bad: {shown}{more}.",
            where=where,
            fix="repair or remove them, or pass --skip-bad to count them as absent records",
        )
