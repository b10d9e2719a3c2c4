"""Residual networks (He, Zhang, Ren and Sun 2016), with a stem for small images (3x3, no max-pool) or as published."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

Norm = Literal["batch", "group"]
Stem = Literal["small", "photographs"]  # 3x3; or 7x7 with stride two and a max-pool, at a sixteenth of the cost
MOST_GROUPS = 32


class ResNet(nn.Module):
    """Four stages of basic blocks, a global average, one linear head.

    With norm "group" an image's outputs depend on that image alone and nothing is written in
    place, so per-example gradients under `torch.func.vmap` are well defined.
    """

    def __init__(
        self,
        blocks: tuple[int, int, int, int],
        channels: int,
        classes: int,
        *,
        width: int = 64,
        norm: Norm = "batch",
        stem: Stem = "small",
    ) -> None:
        super().__init__()
        self.pooled = stem == "photographs"
        self.stem = (
            nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
            if self.pooled
            else nn.Conv2d(channels, width, 3, padding=1, bias=False)
        )
        self.stem_norm = _norm(norm, width)
        stages: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(blocks):
            outputs = width * 2**stage
            for block in range(depth):
                stages.append(BasicBlock(inputs, outputs, stride=2 if stage and not block else 1, norm=norm))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        maps = relu(self.stem_norm(self.stem(2 * images - 1)))
        if self.pooled:
            maps = max_pool2d(maps, 3, stride=2, padding=1)
        return cast(Tensor, self.head(self.stages(maps).mean((2, 3))))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = _norm(norm, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = _norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(narrow, _norm(norm, outputs))

    def forward(self, maps: Tensor) -> Tensor:
        inner = relu(self.first_norm(self.first(maps)))
        return relu(self.second_norm(self.second(inner)) + self.shortcut(maps))


def resnet18(channels: int, classes: int, *, width: int = 64, norm: Norm = "batch", stem: Stem = "small") -> ResNet:
    return ResNet((2, 2, 2, 2), channels, classes, width=width, norm=norm, stem=stem)


def resnet34(channels: int, classes: int, *, width: int = 64, norm: Norm = "batch") -> ResNet:
    return ResNet((3, 4, 6, 3), channels, classes, width=width, norm=norm)


def _norm(norm: Norm, channels: int) -> nn.Module:
    if norm == "group":
        return nn.GroupNorm(min(MOST_GROUPS, channels), channels)
    return nn.BatchNorm2d(channels)


CLASSIFIERS = {
    "resnet18": lambda channels, height, width, classes: resnet18(channels, classes),
    "resnet34": lambda channels, height, width, classes: resnet34(channels, classes),
}
