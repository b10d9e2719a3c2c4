"""Procedural scenes: images that have what photographs of objects have in common; no data at all.

A soft ground, often with a horizon; smooth objects that hide one another, one of them large and near the middle, with
parts; shading, faint texture and shadows; colours of photographs, which are mostly near grey; antialiased edges.
Students of a teacher learn more from such images than from other procedural ones, because their fine structure is
closer to that of photographs: edges are smooth, and most places are almost plain.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.synthesis.dead_leaves import bernoulli, sharpened, uniform

CHUNK = 64  # images at a time: they fit the processor's cache
CANVASES = (64, 96)  # pixels in which scenes of up to forty pixels, and larger ones, are made and then resized
OBJECTS, PARTS = 7, 3  # in a scene, at most
LOBES = (2, 3, 5)  # frequencies of the deviations of a contour from an ellipse or a box


def scenes(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """Procedural scenes (count, c, h, w) in [0, 1]; grey ones are colour scenes without colour."""
    side = max(shape[1:])
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    made = torch.cat([torch.zeros(0, 3, side, side), *(_Canvas(size, side, draw).scene() for size in sizes)])
    images = made[:, :, : shape[1], : shape[2]]
    return images if shape[0] == 3 else images.mean(1, keepdim=True).expand(-1, shape[0], -1, -1)


class _Canvas:
    """What the parts of a chunk of scenes share: its places and a stock of textures, which take time to make."""

    def __init__(self, count: int, side: int, draw: Generator) -> None:
        self.count, self.side, self.draw = count, CANVASES[side > 40], draw
        self.final_side = side
        along = torch.linspace(-1, 1, self.side)
        self.y, self.x = torch.meshgrid(along, along, indexing="ij")
        self.textures = self._noise(2 * count, 0.8, 2.4)

    def scene(self) -> Tensor:
        image = self._ground()
        objects = torch.randint(1, OBJECTS + 1, (self.count, 1, 1, 1), generator=self.draw)
        for number in range(OBJECTS - 1):
            size = self._uniform(math.log(0.06), math.log(0.6)).exp()
            places = (self._uniform(-1, 1), self._uniform(-1, 1))
            image = self._with_object(image, places, size, number < objects, parts=number % 3 == 0)
        places = (0.25 * self._normal(), 0.25 * self._normal())
        image = self._with_object(image, places, self._uniform(0.25, 0.7), torch.tensor(True), parts=True)
        shadow = (0.5 + 0.25 * self._noise(self.count, 1.8, 2.6)).clamp(0, 1)
        image = image * (1 - self._uniform(0, 0.5) * self._some(0.4) * shadow)
        resized = F.interpolate(image, size=(self.final_side,) * 2, mode="bilinear", antialias=True)
        return self._photographed(resized)

    def _ground(self) -> Tensor:
        """One material, or two with a rough horizon between them."""
        rough = (
            self._uniform(0, 0.12) * self.textures[torch.randperm(2 * self.count, generator=self.draw)[: self.count]]
        )
        horizon = self._uniform(-0.6, 0.8) + 0.3 * self._normal() * self.x + rough
        below = (self.y > horizon) & (self._some(0.6) > 0)
        return torch.where(below, self._material(), self._material())

    def _with_object(
        self, image: Tensor, places: tuple[Tensor, Tensor], size: Tensor, there: Tensor, *, parts: bool
    ) -> Tensor:
        """The image with one more object where it is `there`; its parts are within it, or also beside it."""
        mask, along, across = self._blob(*places, size)
        mask = mask & there
        bulge = (along - self._uniform(-0.5, 0.5)).square() + (across - self._uniform(-0.5, 0.5)).square()
        round_shade = 1 - self._uniform(0, 0.35) * self._some(0.6) * bulge.clamp(max=2)
        image = torch.where(mask, self._material() * round_shade, image)
        for _ in range(PARTS if parts else 0):
            x, y = (place + size * self._uniform(-1, 1) for place in places)
            part, _, _ = self._blob(x, y, size * self._uniform(math.log(0.08), math.log(0.6)).exp())
            shown = part & (mask | (self._some(0.35) > 0)) & (self._some(0.7) > 0)
            image = torch.where(shown, self._material(), image)
        return image

    def _blob(self, x: Tensor, y: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mask of a shape with a smooth contour, and coordinates within it that are about 1 at the contour."""
        angle, ratio = self._uniform(0, 2 * math.pi), self._uniform(math.log(0.3), math.log(1.6)).exp()
        right, down = self.x - x, self.y - y
        along = (right * angle.cos() + down * angle.sin()) / size
        across = (down * angle.cos() - right * angle.sin()) / (size * ratio)
        power = 2 + 4 * self._some(0.35)  # an ellipse, or a box with round corners
        radius = (along.abs().clamp(min=1e-6).pow(power) + across.abs().clamp(min=1e-6).pow(power)).pow(1 / power)
        direction, contour = torch.atan2(across, along), torch.ones(())
        unevenness = self._uniform(0, 0.35) * self._some(0.6)
        for lobes in LOBES:
            phase = self._uniform(0, 2 * math.pi)
            contour = contour + unevenness / lobes * self._normal() * torch.cos(lobes * direction + phase)
        return radius < contour, along, across

    def _material(self) -> Tensor:
        """A colour with shading, and sometimes a faint texture or stripes."""
        angle = self._uniform(0, 2 * math.pi)
        slope = self.x * angle.cos() + self.y * angle.sin()
        texture = self.textures[torch.randint(len(self.textures), (self.count,), generator=self.draw)]
        stripes = torch.sin(slope.flip(3) * self._uniform(math.log(6), math.log(60)).exp())
        pattern = (
            self._uniform(0, 0.35) * slope
            + self._uniform(0, 0.12) * self._some(0.6) * texture
            + self._uniform(0, 0.15) * self._some(0.15) * stripes
        )
        tint = 1 + 0.15 * torch.randn(self.count, 3, 1, 1, generator=self.draw)
        return self._colours() + pattern * tint

    def _colours(self) -> Tensor:
        """Mostly near grey, and more between blue and orange than between green and violet."""
        saturation = self._uniform(0, 1).square()
        warm, green = 0.29 * saturation * self._normal(), 0.1 * saturation * self._normal()
        colour = torch.cat([warm, 0.15 * warm - green, 0.3 * green - warm], dim=1)
        return (self._uniform(0.05, 0.95) + colour).clamp(0, 1)

    def _photographed(self, image: Tensor) -> Tensor:
        """Focus, contrast, exposure, colour cast and grain."""
        image = sharpened(image.clamp(0, 1), -self._uniform(-0.5, 1.0))
        cast = 0.08 * self._normal() + 0.03 * torch.randn(self.count, 3, 1, 1, generator=self.draw)
        grain = 0.02 * self._some(0.4) * torch.randn(image.shape, generator=self.draw)
        return (0.5 + (image - 0.5) * self._uniform(0.6, 1.25) + cast + grain).clamp(0, 1)

    def _noise(self, count: int, low: float, high: float) -> Tensor:
        """Noise (count, 1, s, s) of mean 0 and deviation 1, with a power-law spectrum of random exponent."""
        waves = torch.fft.rfft2(torch.randn(count, 1, self.side, self.side, generator=self.draw))
        frequency = (torch.fft.fftfreq(self.side)[:, None].square() + torch.fft.rfftfreq(self.side).square()).sqrt()
        frequency[0, 0] = 1
        noise: Tensor = torch.fft.irfft2(
            waves * frequency.pow(-uniform(low, high, count, self.draw)), s=(self.side,) * 2
        )
        noise = noise - noise.mean((2, 3), keepdim=True)
        return noise / noise.std((2, 3), keepdim=True).clamp(min=1e-6)

    def _uniform(self, low: float, high: float) -> Tensor:
        return uniform(low, high, self.count, self.draw)

    def _some(self, probability: float) -> Tensor:
        return bernoulli(self.count, probability, self.draw)

    def _normal(self) -> Tensor:
        return torch.randn(self.count, 1, 1, 1, generator=self.draw)
