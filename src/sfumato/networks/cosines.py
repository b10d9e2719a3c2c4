"""The orthonormal cosine transform along one side, as a matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cosines(frequencies: int, side: int) -> Tensor:
    """The first rows of the transform: (frequencies, side)."""
    along, wave = torch.arange(side) + 0.5, torch.arange(frequencies)[:, None]
    basis = torch.cos(math.pi / side * wave * along) * math.sqrt(2 / side)
    basis[0] /= math.sqrt(2)
    return basis


def radial_bands(side: int) -> Tensor:
    """The band of each pair of frequencies, by its distance from zero: (side, side)."""
    down, across = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return (down.square() + across.square()).float().sqrt().round().long()
