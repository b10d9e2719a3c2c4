"""A picture of real images beside synthetic ones, class by class; for the lab only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from sfumato.values import Images

ROWS, PER_CLASS, GAP, HEAD = 10, 8, 2, 22


def side_by_side(real: Images, synthetic: Images, path: Path) -> None:
    """Up to ten classes as rows: real images left, synthetic ones right."""
    classes = min(ROWS, len(real.classes))
    left, right = (_grid(images, classes) for images in (real, synthetic))
    zoom = max(1, 64 // max(real.pixels.shape[2:]))
    halves = [
        Image.fromarray(g).resize((g.shape[1] * zoom, g.shape[0] * zoom), Image.Resampling.NEAREST)
        for g in (left, right)
    ]
    sheet = Image.new("RGB", (sum(h.width for h in halves) + 12, halves[0].height + HEAD), "white")
    sheet.paste(halves[0], (0, HEAD))
    sheet.paste(halves[1], (halves[0].width + 12, HEAD))
    draw = ImageDraw.Draw(sheet)
    draw.text((4, 4), "REAL - private, lab only", fill="#b00020")
    draw.text((halves[0].width + 16, 4), "SYNTHETIC", fill="black")
    unfinished = path.with_suffix(".tmp.png")
    sheet.save(unfinished)
    unfinished.replace(path)


def _grid(images: Images, classes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    height, width = images.pixels.shape[2:]
    sheet = torch.full((classes * (height + GAP), PER_CLASS * (width + GAP), 3), 255, dtype=torch.uint8)
    for row in range(classes):
        for column, image in enumerate(_first(images, row)):
            top, start = row * (height + GAP), column * (width + GAP)
            sheet[top : top + height, start : start + width] = image.expand(3, height, width).permute(1, 2, 0)
    return sheet.numpy()


def _first(images: Images, label: int) -> Tensor:
    return images.pixels[images.labels == label][:PER_CLASS]
