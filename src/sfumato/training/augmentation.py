"""Shifted and mirrored versions of images, as classifiers of photographs are trained on.

An image is extended by its own mirror image on every side, and a window of its size is cut out at random.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MARGIN = 8  # a window is shifted by up to one in so many of the image's side: 4 of 32 pixels, as De et al. (2022)


class Window(NamedTuple):
    """Where a version of an image is cut out of the extended image, and whether it is mirrored."""

    top: int
    left: int
    mirrored: bool


def draw_windows(count: int, side: int, *, mirror: bool, draw: torch.Generator) -> list[Window]:
    """Windows at random, for images whose shorter side is `side`; only with `mirror` may they be mirrored."""
    places = torch.randint(2 * _margin(side) + 1, (count, 2), generator=draw).tolist()
    mirrored = torch.randint(2, (count,), generator=draw).tolist()
    return [Window(top, left, mirror and flipped == 1) for (top, left), flipped in zip(places, mirrored, strict=True)]


def versions(image: Tensor, windows: list[Window]) -> Tensor:
    """The versions of one image (c, h, w) by these windows: (len(windows), c, h, w). It draws nothing."""
    margin = _margin(min(image.shape[1:]))
    height, width = image.shape[1:]
    extended = F.pad(image[None], (margin,) * 4, mode="reflect")[0]
    cut = [extended[:, at.top : at.top + height, at.left : at.left + width] for at in windows]
    return torch.stack([part.flip(2) if at.mirrored else part for part, at in zip(cut, windows, strict=True)])


def random_versions(images: Tensor, *, mirror: bool, draw: torch.Generator) -> Tensor:
    """One version of each image (b, c, h, w), each by a window of its own."""
    windows = draw_windows(len(images), min(images.shape[2:]), mirror=mirror, draw=draw)
    margin, (height, width) = _margin(min(images.shape[2:])), images.shape[2:]
    extended = F.pad(images, (margin,) * 4, mode="reflect")
    top, left, mirrored = (torch.tensor(part) for part in zip(*windows, strict=True))
    rows = top[:, None] + torch.arange(height)  # (b, h)
    columns = torch.where(mirrored[:, None], torch.arange(width).flip(0), torch.arange(width)) + left[:, None]
    one_of = torch.arange(len(images))[:, None, None]
    # indices beside a slice put the channels last
    return extended[one_of, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _margin(side: int) -> int:
    return max(1, side // MARGIN) if side > 1 else 0
