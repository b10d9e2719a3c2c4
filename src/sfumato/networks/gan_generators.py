"""The generators of GS-WGAN (Chen, Orekondy, Fritz 2020): residual blocks or transposed convolutions, for any size.

Latent and class become a map of 4 x 4, which is doubled until the image fits in; the middle of it is the image.
"""

from __future__ import annotations

import itertools
import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from sfumato.networks.generator import ConditionalGenerator, PatchGenerator, latents

GENERATORS = ("patches", "resnet", "dcgan")
START = 4  # side of the first map
SMALL = 1e-8


def gan_generator(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    *,
    latent: int,
    hidden: int,
    codes: int,
    binary: bool,
    draw: torch.Generator,
) -> ConditionalGenerator:
    """The generator of that name; the width of a convolutional one is its number of codes."""
    if name == "patches":
        return PatchGenerator(shape, classes, latent=latent, hidden=hidden, codes=codes, binary=binary, draw=draw)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=draw)))
        body = _residual(shape, latent + classes, codes) if name == "resnet" else _dcgan(shape, latent + classes, codes)
    return MapGenerator(body, shape, classes, latent=latent, binary=binary)


class MapGenerator(ConditionalGenerator):
    """A body from latent and class to a map at least as large as the image, cut to the image's size."""

    def __init__(
        self, body: nn.Module, shape: tuple[int, int, int], classes: int, *, latent: int, binary: bool
    ) -> None:
        super().__init__()
        self.body, self._shape = body, shape
        self.latent, self.classes, self.binary = latent, classes, binary
        self.distinct = 2.0**latent if binary else math.inf

    def inputs(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        return latents(len(labels), self.latent, binary=self.binary, draw=draw)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:  # (b, latent), (b,) -> (b, c, h, w) in [0, 1]
        made = self.body(torch.cat([inputs, nn.functional.one_hot(labels, self.classes).float()], dim=1))
        _, height, width = self._shape
        top, left = (made.shape[2] - height) // 2, (made.shape[3] - width) // 2
        return cast(Tensor, made[:, :, top : top + height, left : left + width].sigmoid())


class PixelNorm(nn.Module):
    """Each position of a map is divided by the root mean square of its channels (Karras et al. 2018)."""

    def forward(self, maps: Tensor) -> Tensor:  # (b, c, h, w)
        return maps * (maps.square().mean(1, keepdim=True) + SMALL).rsqrt()


class SpectralNorm(nn.Module):
    """A weight divided by its largest singular value (Miyato et al. 2018), which one power step at a time follows.

    The vector is made a unit vector at each use, so that an average of several generators can be used like one of them.
    """

    vector: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.register_buffer("vector", torch.randn(outputs))

    def forward(self, weight: Tensor) -> Tensor:
        matrix = weight.flatten(1)  # (out, in)
        with torch.no_grad():
            right = nn.functional.normalize(matrix.T @ self.vector, dim=0)
            left = nn.functional.normalize(matrix @ right, dim=0)
            if self.training:
                self.vector.copy_(left)
        return weight / (left @ (matrix @ right)).clamp(min=SMALL)


def _normed(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    register_parametrization(layer, "weight", SpectralNorm(len(layer.weight)))
    return layer


def _doublings(shape: tuple[int, int, int]) -> int:
    return max(0, math.ceil(math.log2(max(shape[1:]) / START)))


class UpBlock(nn.Module):
    """A residual block that doubles the size of a map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            PixelNorm(),
            nn.Upsample(scale_factor=2, mode="nearest"),
            _normed(nn.Conv2d(width, width, 3, padding=1)),
            PixelNorm(),
            nn.ReLU(inplace=True),
            _normed(nn.Conv2d(width, width, 3, padding=1)),
        )
        # a 1 x 1 convolution and nearest neighbours commute, so that the skip is computed on the small map
        self.skip = nn.Sequential(_normed(nn.Conv2d(width, width, 1)), nn.Upsample(scale_factor=2, mode="nearest"))

    def forward(self, maps: Tensor) -> Tensor:
        return cast(Tensor, self.path(maps) + self.skip(maps))


def _residual(shape: tuple[int, int, int], inputs: int, width: int) -> nn.Module:
    return nn.Sequential(
        _normed(nn.Linear(inputs, width * START**2)),
        nn.Unflatten(1, (width, START, START)),
        nn.ReLU(inplace=True),
        PixelNorm(),
        *(UpBlock(width) for _ in range(_doublings(shape))),
        _normed(nn.Conv2d(width, shape[0], 3, padding=1)),
    )


def _dcgan(shape: tuple[int, int, int], inputs: int, width: int) -> nn.Module:
    """Maps of four, two and one times the width; transposed convolutions double their size."""
    doublings = _doublings(shape)
    widths = [width * max(1, 4 // 2**level) for level in range(doublings)] or [width]
    layers: list[nn.Module] = [
        nn.Linear(inputs, widths[0] * START**2),
        nn.Unflatten(1, (widths[0], START, START)),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(inplace=True),
    ]
    for before, after in itertools.pairwise(widths):
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride=2, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
    if doublings:
        layers.append(nn.ConvTranspose2d(widths[-1], shape[0], 4, stride=2, padding=1))
    else:
        layers.append(nn.Conv2d(widths[-1], shape[0], 3, padding=1))
    return nn.Sequential(*layers)
