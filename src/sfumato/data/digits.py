"""The 8 x 8 handwritten digits that scikit-learn carries: 1,797 grey images, for a first try on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.contracts import Reading
from sfumato.data._arrays import ArrayRecords, Stack
from sfumato.data._labels import from_numbers, number_numbers


class Digits(ArrayRecords):
    """Grey levels 0 to 16 become 0 to 255; every fifth record (index % 5 == 4) is the test split."""

    @classmethod
    def recognises(cls, where: str) -> bool:
        return where == "digits"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return ("train", "test")

    def __init__(self, where: str, reading: Reading) -> None:
        from sklearn.datasets import load_digits

        values, targets = load_digits(return_X_y=True)
        held_out = np.arange(len(targets)) % 5 == 4
        mine = held_out if reading.split == "test" else ~held_out
        pixels = np.rint(values[mine] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
        numbers = targets[mine].astype(np.int64)

        def blocks(rows: int) -> Iterator[NDArray[Any]]:
            yield from (pixels[start : start + rows] for start in range(0, len(pixels), rows))

        names = tuple("0123456789")
        classes = from_numbers(numbers, names, reading.classes, where=where)
        self._settle(
            where,
            reading,
            name="digits",
            stack=Stack(place="digits", shape=pixels.shape, dtype=pixels.dtype, blocks=blocks),
            classes=classes,
            labels=number_numbers(numbers, names, classes),
        )
