"""VGG11 for small images: Simonyan and Zisserman (2015), with batch norm and one linear head."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Module):
    """Eight 3x3 convolutions, the map halved after each stage as long as there is something to halve."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs, side = channels, min(height, width)
        for stage in STAGES:
            for outputs in stage:
                convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
                nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
                layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
                inputs = outputs
            if side > 1:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        # An average over what is left of the map: one linear head fits every image size.
        return cast(Tensor, self.head(self.features(2 * images - 1).mean((2, 3))))


CLASSIFIERS = {"vgg11": VGG11}
