"""A fixed two-layer wavelet scattering transform (Bruna and Mallat 2013): nothing in it is learnt.

An image is filtered by oriented Morlet wavelets, the modulus is taken, twice over, and each result is smoothed
and sampled every 2^scales pixels. A coarser wavelet is the same small filter on a halved image, so the whole is a
pyramid of short convolutions: fast on a CPU, at home under vmap, and gradients flow back to the pixels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.networks.linear_teacher import LinearHead

ORIENTATIONS = 8
DEVIATION, FREQUENCY = 0.8, 3 * math.pi / 4  # of the finest wavelet, in pixels and radians
SLANT = 4 / ORIENTATIONS  # wavelets are longer across their direction of travel
REACH = 4  # of a wavelet, in pixels
FEATURE_SIDE = 7.5  # scales are chosen so that a feature map is about this wide
COARSE_SIDE = 32  # of large images, before their features are taken


class Scattering(nn.Module):
    """Orders 0, 1 and 2 of each channel: (b, c, h, w) -> (b, c * paths, ceil(h / 2^J), ceil(w / 2^J))."""

    wavelets: Tensor
    blur: Tensor

    def __init__(self, scales: int) -> None:
        super().__init__()
        self.scales = scales
        self.paths = 1 + scales * ORIENTATIONS + scales * (scales - 1) // 2 * ORIENTATIONS**2
        self.register_buffer("wavelets", _morlets())
        self.register_buffer("blur", _gaussian(DEVIATION, reach=2))

    def forward(self, images: Tensor) -> Tensor:
        b, c = images.shape[:2]
        maps = images.reshape(b * c, 1, *images.shape[2:])  # channels are processed separately
        halved = self._pyramid(maps, self.scales)
        paths = [halved[-1]]
        for j in range(self.scales):
            first = self._pyramid(self._modulus(halved[j]), self.scales - j)  # (bc, L, h / 2^j, w / 2^j)
            paths.append(first[-1])
            for coarser in first[1:-1]:
                paths.append(self._pyramid(self._modulus(coarser), self.scales - _level(coarser, maps))[-1])
        made = torch.cat(paths, dim=1)
        return made.reshape(b, -1, *made.shape[2:])

    def _modulus(self, maps: Tensor) -> Tensor:
        """|x * psi| for every orientation: (n, p, h, w) -> (n, p * L, h, w)."""
        waves = _convolve(maps.reshape(-1, 1, *maps.shape[2:]), self.wavelets)  # real parts first
        real, imaginary = torch.chunk(waves, 2, dim=1)
        # The root's slope is infinite at zero, and flat images must have a gradient too.
        modulus: Tensor = (real.square() + imaginary.square() + 1e-8).sqrt()
        return modulus.reshape(maps.shape[0], -1, *maps.shape[2:])

    def _pyramid(self, maps: Tensor, halvings: int) -> list[Tensor]:
        """The maps, and their blurred halves, quarters, ..."""
        levels = [maps]
        for _ in range(halvings):
            each = maps.shape[1]
            levels.append(_convolve(levels[-1], self.blur.expand(each, -1, -1, -1), stride=2, groups=each))
        return levels


def _level(maps: Tensor, full: Tensor) -> int:
    """How often the maps were halved."""
    return round(math.log2(full.shape[-1] / maps.shape[-1]))


def _convolve(maps: Tensor, filters: Tensor, *, stride: int = 1, groups: int = 1) -> Tensor:
    """Convolution with the border repeated; zeros would put an edge round every image."""
    reach = filters.shape[-1] // 2
    return F.conv2d(F.pad(maps, (reach,) * 4, mode="replicate"), filters, stride=stride, groups=groups)


def _grid(reach: int) -> tuple[Tensor, Tensor]:
    along = torch.arange(-reach, reach + 1, dtype=torch.float64)
    y, x = torch.meshgrid(along, along, indexing="ij")
    return y, x


def _gaussian(deviation: float, *, reach: int) -> Tensor:
    y, x = _grid(reach)
    bump = torch.exp(-(x.square() + y.square()) / (2 * deviation**2))
    return (bump / bump.sum()).float()[None, None]


def _morlets() -> Tensor:
    """(2 L, 1, k, k): real and imaginary parts of a wave under a slanted bump, with mean zero."""
    y, x = _grid(REACH)
    waves = []
    for turn in range(ORIENTATIONS):
        angle = math.pi * turn / ORIENTATIONS
        u = math.cos(angle) * x + math.sin(angle) * y
        v = math.cos(angle) * y - math.sin(angle) * x
        bump = torch.exp(-(u.square() + (SLANT * v).square()) / (2 * DEVIATION**2))
        wave = bump * torch.exp(1j * FREQUENCY * u)
        waves.append(wave - bump * (wave.sum() / bump.sum()))
    stacked = torch.stack(waves) * (SLANT / (2 * math.pi * DEVIATION**2))
    return torch.cat([stacked.real, stacked.imag])[:, None].float()


class ScatteringFeatures(nn.Module):
    """Scattering, normalised within each image to unit length; no statistic of a data set is used.

    Groups of neighbouring paths are normalised together (Tramer and Boneh 2021), so that a linear head can be
    trained privately with a small bound. Images beyond forty pixels are seen at about thirty-two: every feature costs a
    private head noise.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        side = max(height, width)
        self.coarser = round(side / COARSE_SIDE) if side > 40 else 1
        self.scattering = Scattering(scales=max(1, round(math.log2(side / self.coarser / FEATURE_SIDE))))
        self.paths = channels * self.scattering.paths
        self.groups = self.paths // min(d for d in range(2, self.paths + 1) if self.scattering.paths % d == 0)
        with torch.no_grad():
            self.shape = self(torch.zeros(1, channels, height, width)).shape[1:]

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, paths, h', w')
        seen = F.avg_pool2d(images, self.coarser) if self.coarser > 1 else images
        maps: Tensor = F.group_norm(self.scattering(seen), self.groups)
        lengths = torch.linalg.vector_norm(maps.flatten(1), dim=1).clamp(min=1e-6)
        unit: Tensor = maps / lengths[:, None, None, None]
        return unit


class ScatteringClassifier(nn.Module):
    """A linear head on scattering features, of about unit size each so that common learning rates suit it."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.features = ScatteringFeatures(channels, height, width)
        self.head = LinearHead(math.prod(self.features.shape), classes)

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():  # only the head is trained
            maps = self.features(images)
        logits: Tensor = self.head(maps * math.prod(self.features.shape) ** 0.5)
        return logits


CLASSIFIERS = {"scattering": ScatteringClassifier}
