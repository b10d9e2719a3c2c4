"""A folder of small pictures with a table of three attributes and an identifier, as `hide` takes it."""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

CLASSES = {"colour": ("blue", "green", "red"), "shape": ("bar", "square"), "brightness": ("bright", "dark")}
SIDE = 16


def attributes(count: int, *, seed: int = 0) -> dict[str, Tensor]:
    """Blue is as frequent as the two other colours together; the attributes are independent."""
    draw = torch.Generator().manual_seed(seed)
    colour = torch.tensor([0, 0, 1, 2])[torch.arange(count) % 4]
    shape, brightness = (torch.randint(2, (count,), generator=draw) for _ in range(2))
    return {"colour": colour, "shape": shape, "brightness": brightness}


def pictures(known: dict[str, Tensor], *, seed: int = 0) -> Tensor:
    """A bar or a square in one of three colours on noise: uint8 (n, 3, 16, 16)."""
    draw = torch.Generator().manual_seed(seed + 1_000)
    count = len(known["colour"])
    pixels = torch.randint(0, 60, (count, 3, SIDE, SIDE), generator=draw)
    for number in range(count):
        rows = slice(6, 10) if known["shape"][number] == 0 else slice(3, 13)
        pixels[number, 2 - int(known["colour"][number]), rows, 3:13] += 130
        pixels[number] += 60 * (1 - int(known["brightness"][number]))
    return pixels.clamp(0, 255).to(torch.uint8)


def write_folder(folder: Path, count: int = 120, *, seed: int = 0, people: int = 40) -> Path:
    """PNG files and `table.csv` with a column for each attribute, and one that says who is on a picture."""
    known = attributes(count, seed=seed)
    folder.mkdir()
    with (folder / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("file", *known, "who"))
        for number, pixels in enumerate(pictures(known, seed=seed)):
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / f"{number:04}.png")
            values = [CLASSES[name][int(known[name][number])] for name in known]
            table.writerow((f"{number:04}.png", *values, f"person {number % people}"))
    return folder
