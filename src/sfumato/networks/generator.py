"""What a class-conditional generator is, and one that is cheap on a CPU: overlapping patches, then interpolated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn


class ConditionalGenerator(nn.Module, ABC):
    """A network from random inputs and labels to images in [0, 1]."""

    distinct: float = math.inf  # how many different images it can make of a class

    @abstractmethod
    def inputs(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        """What images of these labels are made from, drawn at random: (b, ...)."""

    @abstractmethod
    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:  # (b, ...), (b,) -> (b, c, h, w)
        """One image for each input."""


class PatchGenerator(ConditionalGenerator):
    """Latent and class to a coarse map of codes; a transposed convolution turns them into overlapping patches.

    Full-size convolutions would cost ten times as much per step as everything else; half size and one shared set of
    patches keep their main benefit, smooth images without speckle.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        *,
        latent: int,
        hidden: int,
        codes: int,
        draw: torch.Generator,
        binary: bool = False,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        self.latent, self.classes, self.binary = latent, classes, binary
        self.distinct = 2.0**latent if binary else math.inf
        # Below 16 px every pixel matters, so nothing is enlarged.
        half = (height, width) if max(height, width) < 16 else (-(-height // 2), -(-width // 2))
        rows, columns = -(-half[0] // 2) + 1, -(-half[1] // 2) + 1
        with torch.random.fork_rng(devices=[]):  # the default initialisation is thrown away below
            self.codes = nn.Sequential(
                nn.Linear(latent + classes, hidden),
                nn.BatchNorm1d(hidden),
                nn.ReLU(inplace=True),
                nn.Linear(hidden, hidden),
                nn.BatchNorm1d(hidden),
                nn.ReLU(inplace=True),
                nn.Linear(hidden, codes * rows * columns),
                nn.ReLU(inplace=True),
                nn.Unflatten(1, (codes, rows, columns)),
            )
            self.patches = nn.ConvTranspose2d(codes, channels, 4, stride=2, padding=2)
        self._initialise(draw)
        self.register_buffer("down", _enlarge(half[0], height))
        self.register_buffer("across", _enlarge(half[1], width))

    def _initialise(self, draw: torch.Generator) -> None:
        """Uniform within 1/sqrt(fan-in), as torch does, but from our own generator."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.ConvTranspose2d):
                bound = 1 / math.sqrt(layer.weight[0].numel())
                for parameter in (layer.weight, layer.bias):
                    nn.init.uniform_(cast(Tensor, parameter), -bound, bound, generator=draw)

    def inputs(self, labels: Tensor, draw: torch.Generator) -> Tensor:
        return latents(len(labels), self.latent, binary=self.binary, draw=draw)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:  # (b, latent), (b,) -> (b, c, h, w) in [0, 1]
        given = torch.cat([inputs, nn.functional.one_hot(labels, self.classes).float()], dim=1)
        made = cast(Tensor, self.patches(self.codes(given)))
        down, across = cast(Tensor, self.down), cast(Tensor, self.across)  # (h, h/2), (w, w/2)
        made = made[:, :, : down.shape[1], : across.shape[1]]
        return (down @ made @ across.T).sigmoid()


def latents(count: int, length: int, *, binary: bool, draw: torch.Generator) -> Tensor:
    """Random inputs (count, length): standard normal, or zeros and ones equally often."""
    if binary:
        return torch.randint(2, (count, length), generator=draw).float()
    return torch.randn(count, length, generator=draw)


def _enlarge(short: int, long: int) -> Tensor:
    """Linear interpolation as a matrix (long, short): two products are faster than torch's resize here."""
    rows = torch.eye(short)[:, None]  # (short, 1, short)
    return nn.functional.interpolate(rows, size=long, mode="linear", align_corners=False)[:, 0].T.contiguous()
