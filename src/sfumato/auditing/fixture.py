"""Made-up pictures that audits run on, with unusual records that may expose a leak; nothing here is private."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("round", "square", "tall", "rare")
SIDE, COUNT = 8, 64
WHITE, BLACK, TWIN, CHECKER, RARE, NOBODY = 7, 11, 13, 17, 19, 23  # row numbers of the unusual records

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """Pictures (n, 1, h, w) and labels; a label outside of the classes marks a record that is absent."""

    pixels: Pixels
    labels: Labels

    def changed(self, record: int, *, image: Pixels | int, label: int) -> Records:
        pixels, labels = self.pixels.copy(), self.labels.copy()
        pixels[record], labels[record] = image, label
        return Records(pixels, labels)

    def without(self, record: int) -> Records:
        """The neighbour in which that record is nothing: no label, and no picture behind it either."""
        return self.changed(record, image=0 if self.pixels[record].any() else 255, label=-1)

    def save(self, path: Path) -> Path:
        np.savez(path, x=self.pixels.transpose(0, 2, 3, 1), y=self.labels)
        return path


def records() -> Records:
    """Three kinds of picture with a little jitter, and the unusual ones among them."""
    rng = np.random.default_rng(3)
    yy, xx = np.mgrid[:SIDE, :SIDE] - 3.5
    kinds = [yy**2 + xx**2 < 9, (abs(yy) < 3) & (abs(xx) < 3), abs(xx) < 1.5]
    labels = np.arange(COUNT) % 3
    drawn = np.stack([np.roll(kinds[k] * 200, rng.integers(-1, 2), 1) for k in labels])[:, None]
    pixels = (drawn + rng.integers(0, 40, drawn.shape)).astype(np.uint8)
    checker = ((np.indices((SIDE, SIDE)).sum(0) % 2) * 255).astype(np.uint8)
    made = Records(pixels, labels)
    for place, image, label in (
        (WHITE, 255, 1),
        (BLACK, 0, 0),
        (TWIN, pixels[TWIN + 3], int(labels[TWIN + 3])),
        (CHECKER, checker, 2),
        (RARE, pixels[RARE], 3),
        (NOBODY, 90, -1),
    ):
        made = made.changed(place, image=image, label=label)
    return made


def neighbours(data: Records) -> dict[str, Records]:
    """The same data with one record taken away, by what kind of record that was."""
    return {
        "the first record": data.without(0),
        "the last record": data.without(COUNT - 1),
        "a white outlier": data.without(WHITE),
        "a black record": data.without(BLACK),
        "one of two equal records": data.without(TWIN),
        "a checkerboard of extremes": data.without(CHECKER),
        "the only one of its class": data.without(RARE),
        "a record that never had a class": data.changed(NOBODY, image=255, label=-1),
    }


def public_pictures() -> Records:
    """Pictures that have nothing to do with the others, for methods that start from public images."""
    rng = np.random.default_rng(4)
    return Records(rng.integers(0, 256, (40, 1, SIDE, SIDE), np.uint8), np.zeros(40, np.int64))
