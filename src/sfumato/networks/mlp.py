"""A perceptron with one hidden layer, the weakest judge of a panel and the least fond of textures."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

HIDDEN = 100  # as in the evaluation of DPAC


class MLP(nn.Module):
    """Pixels, one hidden layer, classes."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * height * width, HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, classes),
        )

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.layers(images))


CLASSIFIERS = {"mlp": MLP}
