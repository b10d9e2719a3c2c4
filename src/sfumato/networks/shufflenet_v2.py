"""ShuffleNetV2 x1.0 for small images: Ma, Zhang, Zheng and Sun (2018), with a stem that keeps the map's size."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

STEM, LAST = 24, 1024
STAGES = ((116, 4), (232, 8), (464, 4))  # table 5 of the paper, width x1.0: outputs, units


class ShuffleNetV2(nn.Module):
    """Units that work on half of the channels and then mix the halves; a global average, one linear head."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_pointwise(channels, STEM, kernel=3)]
        inputs = STEM
        for outputs, units in STAGES:
            layers.append(Halving(inputs, outputs))
            layers += [Unit(outputs) for _ in range(units - 1)]
            inputs = outputs
        layers.append(_pointwise(inputs, LAST))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(LAST, classes)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.head(self.features(2 * images - 1).mean((2, 3))))


class Unit(nn.Module):
    """Half of the channels pass untouched, the other half is filtered (figure 3c)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.path = nn.Sequential(_pointwise(half, half), _depthwise(half, stride=1), _pointwise(half, half))

    def forward(self, maps: Tensor) -> Tensor:
        kept, worked = maps.chunk(2, dim=1)
        return _shuffled(kept, self.path(worked))


class Halving(nn.Module):
    """Both branches see every channel and halve the map (figure 3d)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.short = nn.Sequential(_depthwise(inputs, stride=2), _pointwise(inputs, half))
        self.path = nn.Sequential(_pointwise(inputs, half), _depthwise(half, stride=2), _pointwise(half, half))

    def forward(self, maps: Tensor) -> Tensor:
        return _shuffled(self.short(maps), self.path(maps))


def _shuffled(one: Tensor, other: Tensor) -> Tensor:
    """The channels of both branches in turn, so that the next unit's halves hold some of each."""
    return torch.stack((one, other), dim=2).flatten(1, 2)


def _pointwise(inputs: int, outputs: int, *, kernel: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _depthwise(channels: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
    )


CLASSIFIERS = {"shufflenet-v2": lambda channels, height, width, classes: ShuffleNetV2(channels, classes)}
