"""Varied versions of a few images, to train on: turned, sheared, scaled, moved, bent, sharpened, of other contrast.

What is black stays black and what is white stays white, so that plain grounds stay plain.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.synthesis.dead_leaves import sharpened, uniform
from sfumato.values import Images

CHUNK = 500  # versions made at a time; fixed, so that a seed gives the same versions on every machine
TURN, SHEAR, SCALE, SHIFT = 0.25, 0.15, 0.15, 0.1  # at most; in radians, and as shares of the image
BEND, WAVES = 0.06, 4  # standard deviation of how far a pixel is moved, as a share of the image, and by what grid
SHARPENED = (-0.5, 2.0)  # blurred below 0
GAMMA, CONTRAST = 0.4, 0.6  # at most: of the logarithm of the power, and more contrast around the middle


def varied(images: Images, count: int, *, strength: float, seed: int) -> Images:
    """So many versions, of the images in turn; with strength 0 they are the images themselves."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.arange(count) % len(images)
    made = [
        _varied(images.pixels[part].float() / 255, strength, draw).mul(255).round().to(torch.uint8)
        for part in torch.split(rows, CHUNK)
    ]
    return Images(torch.cat(made), images.labels[rows], images.classes)


def _varied(images: Tensor, strength: float, draw: Generator) -> Tensor:
    count = len(images)
    places = F.affine_grid(_moves(count, strength, draw), list(images.shape), align_corners=False)
    bend = 2 * BEND * strength * torch.randn(count, 2, WAVES, WAVES, generator=draw)
    bend = F.interpolate(bend, size=images.shape[2:], mode="bicubic", align_corners=False)
    moved = F.grid_sample(images, places + bend.permute(0, 2, 3, 1), padding_mode="border", align_corners=False)
    lowest, highest = SHARPENED
    sharp = sharpened(moved, strength * uniform(lowest, highest, count, draw)).clamp(1e-6, 1)
    toned = sharp ** (strength * uniform(-GAMMA, GAMMA, count, draw)).exp()
    return (0.5 + (1 + strength * uniform(0, CONTRAST, count, draw)) * (toned - 0.5)).clamp(0, 1)


def _moves(count: int, strength: float, draw: Generator) -> Tensor:
    """Affine maps (count, 2, 3), from places in a version to places in the image."""

    def drawn(most: float) -> Tensor:
        return strength * most * (2 * torch.rand(count, generator=draw) - 1)

    turn, shear, scale = drawn(TURN), drawn(SHEAR), drawn(SCALE).exp()
    across, down = 2 * drawn(SHIFT), 2 * drawn(SHIFT)  # places go from -1 to 1
    first = torch.stack([turn.cos() * scale, (shear - turn.sin()) * scale, across], dim=1)
    second = torch.stack([turn.sin() * scale, turn.cos() * scale, down], dim=1)
    return torch.stack([first, second], dim=1)
