"""NumPy archives: x_train, y_train, x_test, y_test, or x and y, or images and labels, with optional `classes`."""

from __future__ import annotations

from pathlib import Path

from sfumato.contracts import Reading
from sfumato.data import _npy
from sfumato.data._arrays import ArrayRecords
from sfumato.data._layout import layout


class Npz(ArrayRecords):
    """Images as N x H x W, N x H x W x C or N x C x H x W: with four axes, channels are last where that axis is 1 or 3.

    Pixels are uint8, other whole numbers from 0 to 255, or floats from 0 to 1, which are scaled and rounded.
    """

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "npz"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return tuple(_npy.splits(Path(where)))

    def __init__(self, where: str, reading: Reading) -> None:
        stack, classes, labels = _npy.read(Path(where), reading)
        self._settle(where, reading, name=Path(where).stem, stack=stack, classes=classes, labels=labels)
