"""The 8x8 digits of scikit-learn, split, as a judge sees them."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from sfumato.values import Images, Reference

CLASSES = tuple(str(c) for c in range(10))


def reference() -> Reference:
    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(np.round(pixels * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(labels.astype(np.int64))
    return Reference(
        train=Images(pixels[:1438], labels[:1438], CLASSES),
        test=Images(pixels[1438:], labels[1438:], CLASSES),
    )


def noise(count: int) -> Images:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=draw, dtype=torch.uint8)
    return Images(pixels, torch.arange(count) % 10, CLASSES)
