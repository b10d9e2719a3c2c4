"""Wide residual networks: Zagoruyko and Komodakis (2016); few layers, many channels, norm before the convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import relu

from sfumato.networks.cifar_resnet import WIDTHS, early_stride, start_wide, stem


class WideResNet(nn.Module):
    """Depth 6 n + 4: three stages of n blocks, `widen` times as wide as in He's network for CIFAR."""

    def __init__(
        self, depth: int, widen: int, channels: int, classes: int, *, dropout: float = 0.0, stride: int = 1
    ) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise ValueError(f"Expected a depth of 6 n + 4, got {depth}.")
        self.stem = stem(channels, WIDTHS[0], stride)
        stages: list[nn.Module] = []
        inputs = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for block in range((depth - 4) // 6):
                step = 2 if stage and not block else 1
                stages.append(WideBlock(inputs, width * widen, stride=step, dropout=dropout))
                inputs = width * widen
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inputs)
        self.head = nn.Linear(inputs, classes)
        start_wide(self)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        maps = relu(self.norm(self.stages(self.stem(2 * images - 1))))
        return cast(Tensor, self.head(maps.mean((2, 3))))


class WideBlock(nn.Module):
    """Norm, rectifier, 3x3, twice, dropout between; where the shape changes, the shortcut leaves after the norm."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.narrow = None
        if stride > 1 or inputs != outputs:
            self.narrow = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        active = relu(self.first_norm(maps))
        around = maps if self.narrow is None else self.narrow(active)
        inner = self.dropout(relu(self.second_norm(self.first(active))))
        return cast(Tensor, self.second(inner) + around)


def _builder(
    depth: int, widen: int, *, dropout: float = 0.0, quick: bool = False
) -> Callable[[int, int, int, int], nn.Module]:
    return lambda c, h, w, k: WideResNet(depth, widen, c, k, dropout=dropout, stride=early_stride(h, w) if quick else 1)


# one for a panel of judges on two cores; two of DPImageBench, for a GPU
CLASSIFIERS = {
    "wrn-10-2": _builder(10, 2, quick=True),
    "wrn-40-4": _builder(40, 4, dropout=0.3),
    "wrn-28-10": _builder(28, 10),
}
