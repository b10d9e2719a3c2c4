"""Tiny networks as a user would export them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIMENSIONS = 24


class Tiny(nn.Module):
    """Six maps, averaged over quarters; it reads its batch size, as many networks do: (b, 3, h, w) -> (b, 24)."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.adaptive_avg_pool2d(F.relu(self.norm(self.filters(images))), 2)
        return maps.reshape(images.shape[0], -1)


class AmongOthers(Tiny):
    """Features that depend on the other images of a batch, which no private records may be seen through."""

    def forward(self, images: Tensor) -> Tensor:
        made = super().forward(images)
        return made - made.mean(0)


def seeded(kind: type[nn.Module] = Tiny, *, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind().eval()


def export(path: Path, network: nn.Module, *, side: int = 8, dynamic: bool = True) -> Path:
    """The network in a file, for images of this side."""
    dynamic_shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    program = torch.export.export(network, (torch.zeros(2, 3, side, side),), dynamic_shapes=dynamic_shapes)
    torch.export.save(program, path)
    return path


def name_of(path: Path) -> str:
    """As a certificate states it."""
    return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
