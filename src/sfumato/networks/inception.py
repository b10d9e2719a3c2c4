"""The Inception-v3 of the Frechet inception distance (Szegedy et al. 2016; Heusel et al. 2017), without weights.

The network of 2015-12-05, not the one that later papers train: 1008 logits, averages that leave the padding out,
and a largest value in place of the average in the last block. Names are those of the published file of weights.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

POOLED, CLASSES = 2048, 1008


class Step(NamedTuple):
    """One convolution of a path."""

    name: str
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1  # strided convolutions have no padding


Part = Step | tuple[Step, Step]  # a pair stands side by side, and their maps are joined
Path = tuple[Part, ...]
Pool = Literal["average", "largest", "largest-halved"]
COLUMN, ROW, SQUARE = (7, 1), (1, 7), (3, 3)


class Convolution(nn.Module):
    """A convolution without bias, batch norm, and what is positive of it."""

    def __init__(self, inputs: int, outputs: int, kernel: tuple[int, int], *, stride: int, padded: bool) -> None:
        super().__init__()
        around = (kernel[0] // 2, kernel[1] // 2) if padded else (0, 0)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=around, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(maps)))


class Mixed(nn.Module):
    """Paths of convolutions beside each other and one that pools; their maps are joined."""

    def __init__(self, inputs: int, paths: tuple[Path, ...], *, pool: Pool, pool_outputs: int | None = None) -> None:
        super().__init__()
        self.paths, self.pool, self.outputs = paths, pool, 0
        for path in paths:
            width = inputs
            for part in path:
                width = sum(self._add(step, width) for step in _steps(part))
            self.outputs += width
        self.projects = pool_outputs is not None
        if pool_outputs is not None:
            self.outputs += self._add(Step("branch_pool", pool_outputs), inputs)
        else:
            self.outputs += inputs

    def _add(self, step: Step, inputs: int) -> int:
        made = Convolution(inputs, step.outputs, step.kernel, stride=step.stride, padded=step.stride == 1)
        self.add_module(step.name, made)
        return step.outputs

    def forward(self, maps: Tensor) -> Tensor:
        joined = [self._along(path, maps) for path in self.paths]
        pooled = self._pooled(maps)
        joined.append(self.get_submodule("branch_pool")(pooled) if self.projects else pooled)
        return torch.cat(joined, dim=1)

    def _along(self, path: Path, maps: Tensor) -> Tensor:
        for part in path:
            maps = torch.cat([self.get_submodule(step.name)(maps) for step in _steps(part)], dim=1)
        return maps

    def _pooled(self, maps: Tensor) -> Tensor:
        if self.pool == "average":
            return F.avg_pool2d(maps, 3, stride=1, padding=1, count_include_pad=False)
        if self.pool == "largest":
            return F.max_pool2d(maps, 3, stride=1, padding=1)
        return F.max_pool2d(maps, 3, stride=2)


class InceptionV3(nn.Module):
    """Pooled features, and logits from them."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Convolution(3, 32, SQUARE, stride=2, padded=False)
        self.Conv2d_2a_3x3 = Convolution(32, 32, SQUARE, stride=1, padded=False)
        self.Conv2d_2b_3x3 = Convolution(32, 64, SQUARE, stride=1, padded=True)
        self.Conv2d_3b_1x1 = Convolution(64, 80, (1, 1), stride=1, padded=False)
        self.Conv2d_4a_3x3 = Convolution(80, 192, SQUARE, stride=1, padded=False)
        width = 192
        self.mixed = tuple(
            f"Mixed_{name}" for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")
        )
        for name in self.mixed:
            block = _mixed(name, width)
            self.add_module(name, block)
            width = block.outputs
        self.fc = nn.Linear(POOLED, CLASSES)

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, 299, 299) in [0, 1] -> (b, 2048)
        maps = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(2 * images - 1)))
        maps = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(maps, 3, stride=2)))
        maps = F.max_pool2d(maps, 3, stride=2)
        for name in self.mixed:
            maps = self.get_submodule(name)(maps)
        return cast(Tensor, maps).mean((2, 3))

    def logits(self, pooled: Tensor) -> Tensor:  # (b, 2048) -> (b, 1008)
        return cast(Tensor, self.fc(pooled))


def _steps(part: Part) -> tuple[Step, ...]:
    return (part,) if isinstance(part, Step) else part


def _mixed(name: str, inputs: int) -> Mixed:
    """The block of that name: its figure in Szegedy et al. (2016)."""
    if name in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):  # figure 5
        return Mixed(inputs, _FIGURE_5, pool="average", pool_outputs=32 if name == "Mixed_5b" else 64)
    if name == "Mixed_6a":  # figure 10
        return Mixed(inputs, _FIGURE_10, pool="largest-halved")
    if name in _INNER_WIDTHS:
        return Mixed(inputs, _figure_6(_INNER_WIDTHS[name]), pool="average", pool_outputs=192)
    if name == "Mixed_7a":
        return Mixed(inputs, _HALVED_AGAIN, pool="largest-halved")
    pool: Pool = "average" if name == "Mixed_7b" else "largest"
    return Mixed(inputs, _FIGURE_7, pool=pool, pool_outputs=192)


_INNER_WIDTHS = {"Mixed_6b": 128, "Mixed_6c": 160, "Mixed_6d": 160, "Mixed_6e": 192}
_FIGURE_5: tuple[Path, ...] = (
    (Step("branch1x1", 64),),
    (Step("branch5x5_1", 48), Step("branch5x5_2", 64, (5, 5))),
    (Step("branch3x3dbl_1", 64), Step("branch3x3dbl_2", 96, SQUARE), Step("branch3x3dbl_3", 96, SQUARE)),
)
_FIGURE_10: tuple[Path, ...] = (
    (Step("branch3x3", 384, SQUARE, 2),),
    (Step("branch3x3dbl_1", 64), Step("branch3x3dbl_2", 96, SQUARE), Step("branch3x3dbl_3", 96, SQUARE, 2)),
)
_HALVED_AGAIN: tuple[Path, ...] = (
    (Step("branch3x3_1", 192), Step("branch3x3_2", 320, SQUARE, 2)),
    (
        Step("branch7x7x3_1", 192),
        Step("branch7x7x3_2", 192, ROW),
        Step("branch7x7x3_3", 192, COLUMN),
        Step("branch7x7x3_4", 192, SQUARE, 2),
    ),
)
_FIGURE_7: tuple[Path, ...] = (
    (Step("branch1x1", 320),),
    (Step("branch3x3_1", 384), (Step("branch3x3_2a", 384, (1, 3)), Step("branch3x3_2b", 384, (3, 1)))),
    (
        Step("branch3x3dbl_1", 448),
        Step("branch3x3dbl_2", 384, SQUARE),
        (Step("branch3x3dbl_3a", 384, (1, 3)), Step("branch3x3dbl_3b", 384, (3, 1))),
    ),
)


def _figure_6(inner: int) -> tuple[Path, ...]:
    return (
        (Step("branch1x1", 192),),
        (Step("branch7x7_1", inner), Step("branch7x7_2", inner, ROW), Step("branch7x7_3", 192, COLUMN)),
        (
            Step("branch7x7dbl_1", inner),
            Step("branch7x7dbl_2", inner, COLUMN),
            Step("branch7x7dbl_3", inner, ROW),
            Step("branch7x7dbl_4", inner, COLUMN),
            Step("branch7x7dbl_5", 192, ROW),
        ),
    )
