"""MobileNetV2 for small images: Sandler, Howard, Zhu, Zhmoginov and Chen (2018), with the first strides left out."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

# Table 2 of the paper: expansion, outputs, repeats, stride. At 32 px the stem and the second row keep the
# map's size, or the last rows would see a single pixel.
ROWS = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM, LAST = 32, 1280


class MobileNetV2(nn.Module):
    """Inverted residuals with linear bottlenecks, a global average, one linear head."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(channels, STEM, 3)]
        inputs = STEM
        for expansion, outputs, repeats, stride in ROWS:
            for repeat in range(repeats):
                block = InvertedResidual(inputs, outputs, stride=1 if repeat else stride, expansion=expansion)
                layers.append(block)
                inputs = outputs
        layers.append(_convolution(inputs, LAST, 1))
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(LAST, classes)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.head(self.features(2 * images - 1).mean((2, 3))))


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow without a nonlinearity; a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_convolution(inputs, inner, 1)]
        layers += [
            _convolution(inner, inner, 3, stride=stride, groups=inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.path = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        narrow = cast(Tensor, self.path(maps))
        return maps + narrow if self.shortcut else narrow


def _convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


CLASSIFIERS = {"mobilenet-v2": lambda channels, height, width, classes: MobileNetV2(channels, classes)}
