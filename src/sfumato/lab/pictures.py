"""Pictures of the lab: how they are saved, and real images beside synthetic ones, class by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sfumato.files import written_whole
from sfumato.values import Images

ALARM, INK = "#b00020", "black"  # colours of captions of private images, and of others
ROWS, PER_CLASS, GAP, HEAD, MIDDLE = 10, 8, 4, 24, 16


def side_by_side(real: Images, made: Images, path: Path, *, caption: str = "SYNTHETIC") -> None:
    """Up to ten classes as rows: real images left, those that were made right; the first ones of each class."""
    halves = [Image.fromarray(_grid(images, min(ROWS, len(real.classes)))) for images in (real, made)]
    start = halves[0].width + MIDDLE
    sheet = Image.new("RGB", (start + halves[1].width, halves[0].height + HEAD), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((2, 3), "REAL: private, lab only", fill=ALARM, font=ImageFont.load_default(14))
    draw.text((start + 2, 3), caption, fill=INK, font=ImageFont.load_default(14))
    sheet.paste(halves[0], (0, HEAD))
    sheet.paste(halves[1], (start, HEAD))
    save_picture(sheet, path)


def save_picture(picture: Image.Image, path: Path) -> None:
    with written_whole(path) as unfinished:
        picture.save(unfinished, format="PNG")


def save_figure(figure: Figure, path: Path) -> None:
    with written_whole(path) as unfinished:
        figure.savefig(unfinished, format="png")


def _grid(images: Images, classes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    zoom = max(1, 64 // max(images.pixels.shape[2:]))
    height, width = (side * zoom for side in images.pixels.shape[2:])
    sheet = torch.full((classes * (height + GAP), PER_CLASS * (width + GAP), 3), 255, dtype=torch.uint8)
    for row in range(classes):
        for column, image in enumerate(_first(images, row)):
            top, start = row * (height + GAP), column * (width + GAP)
            large = image.repeat_interleave(zoom, 1).repeat_interleave(zoom, 2)
            sheet[top : top + height, start : start + width] = large.expand(3, height, width).permute(1, 2, 0)
    return sheet.numpy()


def _first(images: Images, label: int) -> Tensor:
    return images.pixels[images.labels == label][:PER_CLASS]
