"""The small networks with bounded activations of Papernot et al. (2021), chosen for DP-SGD; quick on a CPU."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from sfumato.networks.models import Shape

SMALL = 16  # grey images narrower than this are padded before the second convolution, or nothing would be left
COLOUR_WIDTHS = (32, 64, 128)
SMALLEST_MAP = 4  # a colour image of 32 pixels is this wide after three poolings; larger images get more stages


class PrivateCNN(nn.Module):
    """Convolutions with tanh and pooling, one hidden layer; there is one network for grey images, one for colour.

    The paper has the first for MNIST and FashionMNIST: 26,010 weights for ten classes of 28 x 28 pixels. The second,
    for CIFAR-10, is in the form of Tramer and Boneh (2021), with a hidden layer: 550,570 weights for 32 x 32 pixels.
    Tanh bounds activations and with them the gradients, so that clipping removes less of them than with rectifiers.
    """

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        sides = (height, width)
        if min(sides) < 8:
            raise ValueError(f"Expected images of at least 8 x 8 pixels, got {height} x {width}.")
        layers, maps, hidden = _grey(sides) if channels == 1 else _colour(channels, sides)
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(maps, hidden), nn.Tanh(), nn.Linear(hidden, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):  # Glorot's, which was made for tanh
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(cast(Tensor, module.bias))

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.head(self.features(2 * images - 1)))


def _grey(sides: tuple[int, int]) -> tuple[list[nn.Module], int, int]:
    """Layers, how many values they give, and the width of the hidden layer."""
    edge = 2 if min(sides) < SMALL else 0
    layers: list[nn.Module] = [
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2, padding=edge),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
    ]
    rows, columns = (((side - 4) // 2 + 2 * edge - 4) // 2 for side in sides)
    return layers, 32 * rows * columns, 32


def _colour(channels: int, sides: tuple[int, int]) -> tuple[list[nn.Module], int, int]:
    """The same; two 3x3 convolutions and a pooling per stage."""
    stages = max(len(COLOUR_WIDTHS), math.ceil(math.log2(max(sides) / SMALLEST_MAP)))
    # only a long narrow image can have fewer rows or columns than the poolings need
    stages = min(stages, int(math.log2(min(sides))))
    layers: list[nn.Module] = []
    inputs = channels
    for stage in range(stages):
        outputs = COLOUR_WIDTHS[min(stage, len(COLOUR_WIDTHS) - 1)]
        for _ in range(2):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Tanh()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    rows, columns = (side >> stages for side in sides)
    return layers, inputs * rows * columns, 128


def _model(shape: Shape, classes: int) -> nn.Module:
    return PrivateCNN(*shape, classes)


CLASSIFIERS = {"private-cnn": PrivateCNN}
MODELS = {"private-cnn": _model}
