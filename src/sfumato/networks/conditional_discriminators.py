"""Discriminators of an image and its label, of layers that DP-SGD is fast on; the label enters in two ways.

Mirza and Osindero (2014) join it with the image; Miyato and Koyama (2018) give each class a direction in the space of
features (projection). There is no batch norm, because that mixes records.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.models import Shape

SMALLEST_MAP = 8  # convolutions with stride 2 follow each other until a map is no wider; there are two at least
SLOPE = 0.2  # of leaky rectifiers below zero
HIDDEN = 64  # units after the convolutions, where the label is joined with the image


class ProjectionDiscriminator(nn.Module):
    """Convolutions, then a direction that all classes have in common and one of the image's class."""

    def __init__(self, shape: Shape, classes: int, *, width: int, draw: torch.Generator) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draw)))
            self.convolutions, values = _convolutions(shape, width)
            self.common = nn.Linear(values, 1)
            self.of_class = nn.Embedding(classes, values)
            for weight in (self.common.weight, self.of_class.weight):
                nn.init.normal_(weight, std=1 / math.sqrt(values))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1], (b,) or (b, m) -> the same
        features = _features(self.convolutions, images)
        if labels.dim() > 1:  # several labels for each image
            features = features[:, None]
        return cast(Tensor, self.common(features)[..., 0] + (self.of_class(labels) * features).sum(-1))


class JoinedDiscriminator(nn.Module):
    """Convolutions, then a hidden layer where the label is joined with what they make of the image."""

    def __init__(self, shape: Shape, classes: int, *, width: int, draw: torch.Generator) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draw)))
            self.convolutions, values = _convolutions(shape, width)
            self.hidden = nn.Linear(values, HIDDEN)
            self.of_class = nn.Embedding(classes, HIDDEN)
            self.score = nn.Linear(HIDDEN, 1)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1], (b,) or (b, m) -> the same
        hidden = self.hidden(_features(self.convolutions, images))
        if labels.dim() > 1:  # several labels for each image
            hidden = hidden[:, None]
        return cast(Tensor, self.score(F.leaky_relu(hidden + self.of_class(labels), SLOPE))[..., 0])


def _features(convolutions: nn.ModuleList, images: Tensor) -> Tensor:  # (b, c, h, w) -> (b, d)
    for convolution in convolutions:
        images = F.leaky_relu(convolution(images), SLOPE)
    return images.flatten(1)


def _convolutions(shape: Shape, width: int) -> tuple[nn.ModuleList, int]:
    """Convolutions with stride 2, each twice as wide as the one before, and how many values the last gives."""
    channels, *sides = shape
    stages = max(2, math.ceil(math.log2(max(sides) / SMALLEST_MAP)))
    layers = nn.ModuleList()
    for stage in range(stages):
        layer = nn.Conv2d(channels, width * 2**stage, 5, stride=2, padding=2)
        nn.init.kaiming_normal_(layer.weight, a=SLOPE)
        nn.init.zeros_(cast(Tensor, layer.bias))
        layers.append(layer)
        channels, sides = layer.out_channels, [-(-side // 2) for side in sides]
    return layers, channels * math.prod(sides)
