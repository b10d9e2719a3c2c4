"""A small U-Net (Ronneberger et al. 2015; Ho et al. 2020) for latents on a grid: a diffusion model's network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from sfumato.networks.unet_blocks import GROUPS, Enlarge, GridAttention, ResidualBlock, embedded_time

Map = Callable[[Tensor], Tensor]


class _Level(nn.Module):
    """Residual blocks at one size of the grid, each with attention after it at the lowest."""

    def __init__(self, channels: int, out: int, time_width: int, *, blocks: int, attention: bool) -> None:
        super().__init__()
        widths = [channels] + [out] * (blocks - 1)
        self.blocks = nn.ModuleList(ResidualBlock(width, out, time_width) for width in widths)
        self.attention = nn.ModuleList(GridAttention(out) if attention else nn.Identity() for _ in widths)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        for block, attention in zip(self.blocks, self.attention, strict=True):
            x = attention(block(x, time))
        return x


class UNet(nn.Module):
    """Noisy latents and times to a prediction of the same shape, and the features of the middle block.

    The width doubles from level to level while the grid's sides are halved; one connection goes past at each level.
    With `classes` it is told a label, too, which scales and shifts as the time does; the last label stands for none.
    """

    def __init__(
        self,
        channels: int,
        *,
        width: int = 64,
        levels: int = 2,
        blocks: int = 1,
        classes: int = 0,
        fastest: float = 1000.0,  # of the waves that tell the time
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.time_width = 4 * width
        self.fastest = fastest
        lowest = widths[-1]
        self.of_time = nn.Sequential(
            nn.Linear(width, self.time_width), nn.SiLU(), nn.Linear(self.time_width, self.time_width)
        )
        self.of_class = nn.Embedding(classes + 1, self.time_width) if classes else None
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList(self._level(out, out, blocks, lowest=out == lowest) for out in widths)
        self.shrink = nn.ModuleList(
            nn.Conv2d(fine, coarse, 3, stride=2, padding=1) for fine, coarse in itertools.pairwise(widths)
        )
        self.middle_in = ResidualBlock(lowest, lowest, self.time_width)
        self.middle_attention = GridAttention(lowest)
        self.middle_out = ResidualBlock(lowest, lowest, self.time_width)
        self.up = nn.ModuleList(self._level(2 * out, out, blocks, lowest=out == lowest) for out in reversed(widths))
        self.enlarge = nn.ModuleList(
            Enlarge(coarse, fine) for fine, coarse in reversed(list(itertools.pairwise(widths)))
        )
        self.norm = nn.GroupNorm(GROUPS, width)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        nn.init.zeros_(self.last.weight)

    def _level(self, channels: int, out: int, blocks: int, *, lowest: bool) -> _Level:
        return _Level(channels, out, self.time_width, blocks=blocks, attention=lowest)

    @property
    def attention_projections(self) -> tuple[str, ...]:
        """The names of the linear layers that make queries, keys, values and outputs of all attention."""
        found = [name for name, module in self.named_modules() if isinstance(module, GridAttention)]
        return tuple(f"{name}.{part}" for name in found for part in ("query", "key", "value", "output"))

    @property
    def conditioning_projections(self) -> tuple[str, ...]:
        """The names of the linear layers by which time and class scale and shift in the residual blocks."""
        found = [name for name, module in self.named_modules() if isinstance(module, ResidualBlock)]
        return tuple(f"{name}.of_time" for name in found)

    def forward(  # (n, c, a, b), (n,) -> (n, c, a, b), (n, f, a', b')
        self, noisy: Tensor, times: Tensor, through: Map | None = None, labels: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`times` are in [0, 1]; `through` is applied to the middle block's features."""
        time = self.of_time(embedded_time(times, self.stem.out_channels, self.fastest))
        if self.of_class is not None:
            time = time + self.of_class(labels)
        x = self.stem(noisy)
        passed = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else self.shrink[level - 1](x), time)
            passed.append(x)
        features = self.middle_out(self.middle_attention(self.middle_in(x, time)), time)
        if through is not None:
            features = through(features)
        x = features
        for level, up in enumerate(self.up):
            skip = passed[-1 - level]
            x = x if level == 0 else self.enlarge[level - 1](x, skip.shape[2:])
            x = up(torch.cat([x, skip], dim=1), time)
        return cast(Tensor, self.last(silu(self.norm(x)))), features
