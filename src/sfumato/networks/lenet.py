"""LeNet-5: LeCun, Bottou, Bengio and Haffner (1998), with rectifiers and max-pooling as it is used today."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

KERNEL, FIRST, SECOND = 5, 6, 16
SMALL = 16  # images narrower than this are padded before the second convolution too, or nothing would be left


class LeNet(nn.Module):
    """Two convolutions with pooling, three linear layers; 61,706 weights for ten classes of grey 28 x 28 images."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        edge = KERNEL // 2 if min(height, width) < SMALL else 0
        self.features = nn.Sequential(
            nn.Conv2d(channels, FIRST, KERNEL, padding=KERNEL // 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(FIRST, SECOND, KERNEL, padding=edge),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        rows, columns = ((side // 2 + 2 * edge - KERNEL + 1) // 2 for side in (height, width))
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(SECOND * rows * columns, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, classes),
        )

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.head(self.features(2 * images - 1)))


CLASSIFIERS = {"lenet": LeNet}
