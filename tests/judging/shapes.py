"""Small pictures of which three attributes are known, and releases of them that hide one of these or nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.values import Attributed

CLASSES = {"colour": ("blue", "red", "green"), "shape": ("bar", "square"), "brightness": ("dark", "bright")}
SIDE = 16


def shapes(count: int = 240, *, seed: int = 0) -> Attributed:
    """A bar or a square in one of three colours, of which blue is as frequent as the two others, on noise."""
    draw = torch.Generator().manual_seed(seed)
    colour = torch.tensor([0, 0, 1, 2])[torch.arange(count) % 4]
    shape, brightness = (torch.randint(2, (count,), generator=draw) for _ in range(2))
    attributes = {"colour": colour, "shape": shape, "brightness": brightness}
    return Attributed(drawn(colour, shape, brightness, seed=seed), attributes, CLASSES)


def drawn(colour: Tensor, shape: Tensor, brightness: Tensor, *, seed: int = 0) -> Tensor:
    """The pictures, uint8 (n, 3, 16, 16); the noise of a picture is its own, whatever is drawn on it."""
    draw = torch.Generator().manual_seed(seed + 1_000)
    pixels = torch.randint(0, 60, (len(colour), 3, SIDE, SIDE), generator=draw)
    for picture, c, s, b in zip(pixels, colour.tolist(), shape.tolist(), brightness.tolist(), strict=True):
        rows = slice(6, 10) if s == 0 else slice(3, 13)
        picture[c, rows, 3:13] += 190
        picture += 60 * b
    return pixels.clamp(0, 255).to(torch.uint8)


def without_colour(images: Attributed) -> Tensor:
    """The same pictures in colours that are drawn anew, as often each, so that they say nothing of the true ones."""
    true = images.attributes["colour"]
    other = true[torch.randperm(len(true), generator=torch.Generator().manual_seed(5))]
    return drawn(other, images.attributes["shape"], images.attributes["brightness"])
