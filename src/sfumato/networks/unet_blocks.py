"""What a diffusion U-Net is built of: residual blocks that know the time, and attention over the grid.

Nothing here works in place, looks at values to decide what to do, or mixes records, so that all of it runs under vmap.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu

GROUPS = 8  # of group norm; every width is a multiple of it


def normed_width(width: int, shape: tuple[int, int, int]) -> int:
    """The next width that group norm can take on such a grid (c, a, b).

    At one place a group has to have two channels, because a single value has no deviation.
    """
    least = 2 * GROUPS if shape[1] * shape[2] == 1 else GROUPS
    return max(least, -(-width // GROUPS) * GROUPS)


def embedded_time(times: Tensor, width: int, fastest: float = 1000.0) -> Tensor:
    """Sines and cosines of times in [0, 1] at `width` / 2 frequencies, in half turns: (n, width)."""
    frequencies = torch.exp(torch.linspace(0, math.log(fastest), width // 2, device=times.device))
    angles = times[:, None] * frequencies * math.pi
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResidualBlock(nn.Module):
    """Two convolutions around which the input goes past; the time scales and shifts what is between them."""

    def __init__(self, channels: int, out: int, time_width: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.GroupNorm(GROUPS, channels), nn.GroupNorm(GROUPS, out)
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.of_time = nn.Linear(time_width, 2 * out)
        self.past = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)
        nn.init.zeros_(self.second.weight)  # before training a block passes its input on

    def forward(self, x: Tensor, time: Tensor) -> Tensor:  # (n, c, a, b), (n, time_width) -> (n, out, a, b)
        hidden = self.first(silu(self.norm_in(x)))
        scale, shift = self.of_time(silu(time))[:, :, None, None].chunk(2, dim=1)
        hidden = self.second(silu(self.norm_out(hidden) * (1 + scale) + shift))
        return cast(Tensor, self.past(x) + hidden)


class GridAttention(nn.Module):
    """Attention (Vaswani et al. 2017) among the places of a grid; its four projections are plain linear layers."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.query, self.key = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.value, self.output = nn.Linear(channels, channels), nn.Linear(channels, channels)
        nn.init.zeros_(self.output.weight)

    def forward(self, x: Tensor) -> Tensor:  # (n, c, a, b) -> (n, c, a, b)
        n, c, a, b = x.shape
        places = self.norm(x).flatten(2).transpose(1, 2)  # (n, a * b, c)
        query, key, value = (self._split(each(places)) for each in (self.query, self.key, self.value))
        shares = (query @ key.transpose(2, 3) / math.sqrt(c // self.heads)).softmax(dim=3)  # (n, heads, a * b, a * b)
        gathered = (shares @ value).transpose(1, 2).reshape(n, a * b, c)
        return x + cast(Tensor, self.output(gathered)).transpose(1, 2).reshape(n, c, a, b)

    def _split(self, places: Tensor) -> Tensor:  # (n, a * b, c) -> (n, heads, a * b, c / heads)
        return places.reshape(*places.shape[:2], self.heads, -1).transpose(1, 2)


class Enlarge(nn.Module):
    """Twice as many places along each side, or as many as are asked for, and a convolution over them."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, out, 3, padding=1)

    def forward(self, x: Tensor, size: torch.Size) -> Tensor:
        return cast(Tensor, self.convolution(interpolate(x, size=tuple(size), mode="nearest")))
