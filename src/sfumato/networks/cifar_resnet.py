"""The narrow residual networks that He, Zhang, Ren and Sun (2016) made for CIFAR: depth 6 n + 2, basic blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import relu

from sfumato.networks.resnet import BasicBlock

WIDTHS = (16, 32, 64)
EARLY_MAP = 8  # the quick networks shrink an image to at most this width in their first convolution


class Staged(nn.Module):
    """A first convolution, stages of residual blocks, a global average, one linear head."""

    def __init__(self, first: nn.Conv2d, stages: Sequence[nn.Module], outputs: int, classes: int) -> None:
        super().__init__()
        self.stem = first
        self.stem_norm = nn.BatchNorm2d(first.out_channels)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(outputs, classes)
        start_wide(self)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        maps = self.stages(relu(self.stem_norm(self.stem(2 * images - 1))))
        return cast(Tensor, self.head(maps.mean((2, 3))))


class CifarResNet(Staged):
    """Three stages of basic blocks; shortcuts are 1x1 where the shape changes."""

    def __init__(self, depth: int, channels: int, classes: int, *, stride: int = 1) -> None:
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"Expected a depth of 6 n + 2, got {depth}.")
        first = stem(channels, WIDTHS[0], stride)
        stages: list[nn.Module] = []
        inputs = WIDTHS[0]
        for stage, outputs in enumerate(WIDTHS):
            for block in range((depth - 2) // 6):
                stages.append(BasicBlock(inputs, outputs, stride=2 if stage and not block else 1, norm="batch"))
                inputs = outputs
        super().__init__(first, stages, inputs, classes)


def stem(channels: int, outputs: int, stride: int) -> nn.Conv2d:
    """The first convolution: 3x3, or as wide as its stride needs to see every pixel."""
    kernel = max(3, stride + 1 if stride % 2 == 0 else stride)
    return nn.Conv2d(channels, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def early_stride(height: int, width: int) -> int:
    """The stride of the first convolution that makes a network quick at any image size: 4 for 28 pixels."""
    return 1 << max(0, math.ceil(math.log2(max(height, width) / EARLY_MAP)))


def start_wide(network: nn.Module) -> None:
    """He initialisation of every convolution, by its outputs."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _builder(depth: int, *, quick: bool = False) -> Callable[[int, int, int, int], nn.Module]:
    return lambda c, h, w, k: CifarResNet(depth, c, k, stride=early_stride(h, w) if quick else 1)


# one for a panel of judges on two cores; two of DPImageBench, for a GPU
CLASSIFIERS = {"resnet8": _builder(8, quick=True), "resnet110": _builder(110), "resnet164": _builder(164)}
