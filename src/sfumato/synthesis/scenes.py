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

CHUNK = 32  # images at a time: they fit the processor's cache
CANVASES = (64, 96)  # pixels in which scenes of up to forty pixels, and larger ones, are made and then resized
OBJECTS, PARTS = 7, 3  # in a scene, at most
WITH_PARTS = (0, 3, OBJECTS - 1)  # numbers of the objects that have parts; the last object is the one near the middle
LAYERS = 2 + OBJECTS + PARTS * len(WITH_PARTS)  # two grounds, objects, parts
LOBES = (2, 3, 5)  # frequencies of the deviations of a contour from an ellipse or a box


def scenes(count: int, shape: tuple[int, int, int], draw: Generator) -> Tensor:
    """Procedural scenes (count, c, h, w) in [0, 1]; grey ones are colour scenes without colour."""
    side = max(shape[1:])
    sizes = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    made = torch.cat([torch.zeros(0, 3, side, side), *(_Canvas(size, side, draw).scene() for size in sizes)])
    images = made[:, :, : shape[1], : shape[2]]
    return images if shape[0] == 3 else images.mean(1, keepdim=True).expand(-1, shape[0], -1, -1)


class _Canvas:
    """A chunk of scenes: first which layer is uppermost at each place, then the material of that layer alone.

    Most layers are hidden at most places, so their materials, which take most of the time, are never computed there.
    """

    def __init__(self, count: int, side: int, draw: Generator) -> None:
        self.count, self.side, self.draw = count, CANVASES[side > 40], draw
        self.final_side = side
        along = torch.linspace(-1, 1, self.side)
        self.y, self.x = along[:, None], along  # they broadcast to (h, w)
        self.textures = self._noise(2 * count, 0.8, 2.4)[:, 0]
        self.uppermost = torch.zeros(count, self.side, self.side, dtype=torch.int64)  # the number of a layer
        self.layers = 0  # so many are there
        # Of each layer: an affine frame (right, down, shift) along and across it, and how much it is shaded as a ball.
        self.bulges = torch.zeros(count, 7, LAYERS)

    def scene(self) -> Tensor:
        self._add_grounds()
        objects = torch.randint(1, OBJECTS + 1, (self.count, 1, 1), generator=self.draw)
        for number in range(OBJECTS):
            if number < OBJECTS - 1:
                size = self._uniform(math.log(0.06), math.log(0.6)).exp()
                self._add_object((self._uniform(-1, 1), self._uniform(-1, 1)), size, number, number < objects)
            else:
                places = (0.25 * self._normal(), 0.25 * self._normal())
                self._add_object(places, self._uniform(0.25, 0.7), number, torch.tensor(True))
        image = self._materials()
        shadow = (0.5 + 0.25 * self._noise(self.count, 1.8, 2.6)).clamp_(0, 1)
        strength = (self._uniform(0, 0.5) * self._some(0.4))[:, None]
        image = image * (1 - strength * shadow)
        resized = F.interpolate(image, size=(self.final_side,) * 2, mode="bilinear", antialias=True)
        return self._photographed(resized)

    def _add_grounds(self) -> None:
        """One ground, or two with a rough horizon between them."""
        order = torch.randperm(len(self.textures), generator=self.draw)[: self.count]
        rough = self._uniform(0, 0.12) * self.textures[order]
        horizon = self._uniform(-0.6, 0.8) + 0.3 * self._normal() * self.x + rough
        self.uppermost.masked_fill_((self.y > horizon) & (self._some(0.6) > 0), 1)
        self.layers = 2

    def _add_object(self, places: tuple[Tensor, Tensor], size: Tensor, number: int, there: Tensor) -> None:
        """One more object where it is `there`; its parts are within it, or also beside it."""
        mask, frame = self._blob(*places, size)
        mask &= there
        centre = [self._uniform(-0.5, 0.5), self._uniform(-0.5, 0.5)]
        frame[2], frame[5] = frame[2] - centre[0], frame[5] - centre[1]
        amount = self._uniform(0, 0.35) * self._some(0.6)
        self.bulges[:, :, self.layers] = torch.cat([*frame, amount], dim=1)[:, :, 0]
        self._add(mask)
        for _ in range(PARTS if number in WITH_PARTS else 0):
            x, y = (place + size * self._uniform(-1, 1) for place in places)
            part, _ = self._blob(x, y, size * self._uniform(math.log(0.08), math.log(0.6)).exp())
            self._add(part & (mask | (self._some(0.35) > 0)) & (self._some(0.7) > 0))

    def _add(self, mask: Tensor) -> None:
        self.uppermost.masked_fill_(mask, self.layers)
        self.layers += 1

    def _blob(self, x: Tensor, y: Tensor, size: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The mask of a shape with a smooth contour, and its frame: coordinates that are about 1 at the contour."""
        angle, ratio = self._uniform(0, 2 * math.pi), self._uniform(math.log(0.3), math.log(1.6)).exp()
        cos, sin, wide = angle.cos() / size, angle.sin() / size, size * ratio
        cos_across, sin_across = angle.cos() / wide, angle.sin() / wide
        frame = [cos, sin, -cos * x - sin * y, -sin_across, cos_across, sin_across * x - cos_across * y]
        along, across = self._affine(*frame[:3]), self._affine(*frame[3:])
        box = self._some(0.35) > 0  # with round corners; otherwise an ellipse
        contour = torch.ones(())
        direction = torch.atan2(across, along)
        unevenness = self._uniform(0, 0.35) * self._some(0.6)
        for lobes in LOBES:
            phase = self._uniform(0, 2 * math.pi)
            wave = (lobes * direction).add_(phase).cos_()
            contour = wave.mul_(unevenness / lobes * self._normal()).add_(contour)
        # The norm of (along, across) with exponent 2, or 6 for a box, against the contour: both raised to the exponent.
        along, across, contour = along.square_(), across.square_(), contour.clamp_(min=0).square_()
        ellipse = along + across < contour
        cubes = along.pow(3).add_(across.pow(3))
        return torch.where(box, cubes < contour.pow(3), ellipse), frame

    def _affine(self, right: Tensor, down: Tensor, shift: Tensor) -> Tensor:
        return right * self.x + (down * self.y + shift)  # (n, h, w)

    def _materials(self) -> Tensor:
        """At each place the colour of the uppermost layer with shading, and sometimes a faint texture or stripes."""
        angle = self._of_layers(0, 2 * math.pi)
        right, down = angle.cos(), angle.sin()
        shading = self._of_layers(0, 0.35)
        textured = self._of_layers(0, 0.12) * self._some_layers(0.6)
        width = self._of_layers(math.log(6), math.log(60)).exp()
        striped = self._of_layers(0, 0.15) * self._some_layers(0.15)
        tint = 1 + 0.15 * torch.randn(self.count, 3, LAYERS, generator=self.draw)
        of_layers = [
            *(self._colours(), tint, self.bulges),
            *(shading * right, shading * down, textured, -right * width, down * width, striped),
        ]
        rows = torch.cat(of_layers, dim=1).transpose(1, 2).flatten(0, 1)  # (n layers, k)
        numbers = self.uppermost + LAYERS * torch.arange(self.count)[:, None, None]
        seen = F.embedding(numbers, rows).permute(0, 3, 1, 2).contiguous()  # (n, k, h, w)
        colour, tint, bulge, plain = torch.split(seen, [3, 3, 7, 6], dim=1)

        pattern = plain[:, 0] * self.x + plain[:, 1] * self.y
        pattern += plain[:, 2] * self._texture()
        pattern += plain[:, 5] * torch.sin(plain[:, 3] * self.x + plain[:, 4] * self.y)
        along = bulge[:, 0] * self.x + bulge[:, 1] * self.y + bulge[:, 2]
        across = bulge[:, 3] * self.x + bulge[:, 4] * self.y + bulge[:, 5]
        shade = 1 - bulge[:, 6] * along.square_().add_(across.square_()).clamp_(max=2)
        image: Tensor = (colour + tint * pattern[:, None]).mul_(shade[:, None])
        return image

    def _texture(self) -> Tensor:
        """At each place one of the textures, another for each layer."""
        numbers = torch.randint(len(self.textures), (self.count, LAYERS), generator=self.draw)
        seen = numbers.gather(1, self.uppermost.flatten(1)).reshape(self.uppermost.shape)
        pixels = torch.arange(self.side**2).reshape(self.side, self.side)
        return self.textures.flatten()[seen * self.side**2 + pixels]

    def _colours(self) -> Tensor:
        """Of each layer: mostly near grey, and more between blue and orange than between green and violet."""
        saturation = self._of_layers(0, 1).square()
        warm = 0.29 * saturation * torch.randn(saturation.shape, generator=self.draw)
        green = 0.1 * saturation * torch.randn(saturation.shape, generator=self.draw)
        colour = torch.cat([warm, 0.15 * warm - green, 0.3 * green - warm], dim=1)
        return (self._of_layers(0.05, 0.95) + colour).clamp(0, 1)

    def _photographed(self, image: Tensor) -> Tensor:
        """Focus, contrast, exposure, colour cast and grain."""
        image = sharpened(image.clamp(0, 1), -self._uniform(-0.5, 1.0)[:, None])
        cast = 0.08 * self._normal()[:, None] + 0.03 * torch.randn(self.count, 3, 1, 1, generator=self.draw)
        grain = 0.02 * self._some(0.4)[:, None] * torch.randn(image.shape, generator=self.draw)
        return (0.5 + (image - 0.5) * self._uniform(0.6, 1.25)[:, None] + cast + grain).clamp(0, 1)

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
        """One number for each image: (n, 1, 1)."""
        return uniform(low, high, self.count, self.draw)[:, 0]

    def _some(self, probability: float) -> Tensor:
        return bernoulli(self.count, probability, self.draw)[:, 0]

    def _normal(self) -> Tensor:
        return torch.randn(self.count, 1, 1, generator=self.draw)

    def _of_layers(self, low: float, high: float) -> Tensor:
        """One number for each layer of each image: (n, 1, layers)."""
        return low + (high - low) * torch.rand(self.count, 1, LAYERS, generator=self.draw)

    def _some_layers(self, probability: float) -> Tensor:
        return (self._of_layers(0, 1) < probability).float()
