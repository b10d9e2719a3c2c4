"""Folders of MNIST-style idx files: train-images-idx3-ubyte and so on, gzipped or not."""

from __future__ import annotations

from pathlib import Path

from sfumato.contracts import Reading
from sfumato.data import _idx
from sfumato.data._arrays import ArrayRecords
from sfumato.data._layout import layout


class Idx(ArrayRecords):
    """Grey images and labels of one byte each; `t10k` is the test split."""

    @classmethod
    def recognises(cls, where: str) -> bool:
        return layout(where) == "idx"

    @classmethod
    def splits(cls, where: str) -> tuple[str, ...]:
        return tuple(_idx.splits(Path(where)))

    def __init__(self, where: str, reading: Reading) -> None:
        stack, classes, labels = _idx.read(Path(where), reading)
        self._settle(where, reading, name=Path(where).resolve().name, stack=stack, classes=classes, labels=labels)
