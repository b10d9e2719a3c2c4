"""Small data sets that tests share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sfumato.privacy import Budget, GaussianSum, Ledger, Noise, PrivateImages, Query
from sfumato.values import Spec

CLASSES = ("a", "b", "c")


class ToySource:
    """Records in memory, as a reader would give them."""

    name = "toy"

    def __init__(self, pixels: np.ndarray, labels: np.ndarray, classes: tuple[str, ...] = CLASSES) -> None:
        self.pixels, self.labels = pixels.astype(np.uint8), labels.astype(np.int64)
        self.spec = Spec(len(pixels), *pixels.shape[1:], classes)

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.pixels), 50):
            yield self.pixels[start : start + 50], self.labels[start : start + 50]

    def without(self, record: int) -> ToySource:
        """The zero-out neighbour: that record becomes nothing."""
        labels = self.labels.copy()
        labels[record] = -1
        return ToySource(self.pixels, labels, self.spec.classes)


def toy(count: int = 120, side: int = 4, seed: int = 0) -> ToySource:
    rng = np.random.default_rng(seed)
    return ToySource(rng.integers(0, 256, (count, 1, side, side)), np.arange(count) % 3)


def opened(
    source: ToySource, mechanism: GaussianSum, *, noise: Noise | None = None, epsilon: float = math.inf
) -> Query:
    ledger = Ledger(Budget(epsilon, 1e-5))
    private = PrivateImages.seal(source, ledger, noise=noise)
    query = private.open(mechanism, purpose="test")
    query_keeps_alive.append(private)
    return query


query_keeps_alive: list[PrivateImages] = []


def development_data(name: str) -> Path:
    """A file of the development data, or skip: a user's machine does not have it."""
    folders = [os.environ.get("SFUMATO_DEV_DATA"), *(p / "shared" / "data" for p in Path(__file__).parents)]
    for folder in filter(None, folders):
        if (Path(folder) / name).exists():
            return Path(folder) / name
    pytest.skip(f"needs the development file {name} (set SFUMATO_DEV_DATA)")
