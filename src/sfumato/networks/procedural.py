"""A small convolutional network for fixed features, trained on procedural images alone."""

from __future__ import annotations

from torch import Tensor, nn

WIDTHS = (64, 128, 256)


class ProceduralNetwork(nn.Module):
    """Three stages, each at half the resolution of the one before; two have a residual convolution."""

    def __init__(self, widths: tuple[int, int, int] = WIDTHS) -> None:
        super().__init__()
        first, second, third = widths
        self.stem = convolution(3, first, kernel=5, stride=2)
        self.down = convolution(first, second, kernel=3, stride=2)
        self.middle = convolution(second, second, kernel=3, stride=1)
        self.further = convolution(second, third, kernel=3, stride=2)
        self.last = convolution(third, third, kernel=3, stride=1)

    def maps(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (b, 3, h, w) in [0, 1] -> (b, c, h', w') each
        stem = self.stem(2 * images - 1)
        down = self.down(stem)
        middle = down + self.middle(down)
        further = self.further(middle)
        return stem, middle, further + self.last(further)

    def forward(self, images: Tensor) -> Tensor:  # (b, 3, h, w) in [0, 1] -> (b, d)
        pooled: Tensor = self.maps(images)[2].mean((2, 3))
        return pooled


def convolution(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())
