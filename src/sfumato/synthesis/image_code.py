"""Image codes: a compact public representation by a few hundred coefficients, suited to noisy moments; and back.

Natural images are given by their low cosine frequencies, luminance finer than colour. An object on a dark ground is
given by its outline, as the distance to its edge (a shape moves smoothly under it where pixels jump), and by its
tones, continued smoothly beyond the edge so that no outline is left in them. Nothing here is learnt.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.networks.cosines import cosines

Kind = Literal["strokes", "object", "scene"]
REACH = 1 / 7  # of the side; larger distances to the edge are clipped
EDGES = {"strokes": 0.5, "object": 0.08}  # brighter pixels are inside
CENTRES = {
    "strokes": (0.2,),
    "object": (0.35, 0.5),
    "scene": (0.5, 0.0, 0.0),
}  # subtracted, as shorter codes need less noise
FINE = {"strokes": (14,), "object": (16, 16), "scene": (16, 8, 8)}  # frequencies along a side whose means are asked
COARSE = {"strokes": (12,), "object": (10, 10), "scene": (10, 6, 6)}  # and those whose covariances are
TO_OPPONENTS = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-0.5, 1.0, -0.5]]) / torch.tensor(
    [[3.0], [2.0], [2.0]]
)


class ImageCode:
    """Encoder of one image and decoder of many, for images of one shape."""

    def __init__(
        self, kind: Kind, shape: tuple[int, int, int], *, inverted: bool = False, lightness: float | None = None
    ) -> None:
        channels, height, width = shape
        self.kind, self.inverted, self.shape = kind, inverted, shape
        fields = channels if kind == "scene" else len(CENTRES[kind])
        self.centres = CENTRES[kind][:fields]
        if lightness is not None:  # mean brightness of the images, if known
            self.centres = (lightness, *self.centres[1:])
        self.reach = max(1.5, REACH * max(height, width))
        self.down = [cosines(min(k, height), height) for k in FINE[kind][:fields]]
        self.across = [cosines(min(k, width), width) for k in FINE[kind][:fields]]
        sizes = [(len(d), len(a)) for d, a in zip(self.down, self.across, strict=True)]
        self.length = sum(rows * columns for rows, columns in sizes)
        coarse, bands = [], []
        for number, ((rows, columns), most) in enumerate(zip(sizes, COARSE[kind], strict=False)):
            i, j = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            coarse.append(((i < most) & (j < most)).flatten())
            bands.append((i.square() + j.square()).float().sqrt().round().long().flatten() + 1_000 * number)
        self.coarse = torch.cat(coarse).nonzero()[:, 0]  # places of the low frequencies in a code
        self.bands = torch.cat(bands)  # the band of frequencies and the field of each coefficient

    def encode(self, image: Tensor) -> Tensor:  # (c, h, w) in [0, 1] -> (length,)
        fields = zip(
            self._fields(1 - image if self.inverted else image), self.centres, self.down, self.across, strict=True
        )
        return torch.cat([(down @ (field - centre) @ across.T).flatten() for field, centre, down, across in fields])

    def decode(self, codes: Tensor) -> Tensor:  # (n, length) -> (n, c, h, w) in [0, 1]
        parts = torch.split(codes, [len(d) * len(a) for d, a in zip(self.down, self.across, strict=True)], dim=1)
        fields = []
        for part, centre, down, across in zip(parts, self.centres, self.down, self.across, strict=True):
            fields.append(down.T @ part.reshape(len(codes), len(down), len(across)) @ across + centre)
        images = torch.stack(self._rendered(fields), dim=1).clamp(0, 1)
        return 1 - images if self.inverted else images

    def _fields(self, image: Tensor) -> list[Tensor]:
        if self.kind == "scene":
            return list(image if len(image) == 1 else torch.einsum("of,fhw->ohw", TO_OPPONENTS, image))
        edge = EDGES[self.kind]
        outline = _distance(image[0], edge, self.reach)
        return [outline] if self.kind == "strokes" else [outline, _continued(image[0], edge)]

    def _rendered(self, fields: list[Tensor]) -> list[Tensor]:
        if self.kind == "scene":
            if len(fields) == 1:
                return fields
            back = torch.linalg.inv(TO_OPPONENTS)
            return [sum(w * f for w, f in zip(row, fields, strict=True)) for row in back.tolist()]
        # A slope of 3 per pixel gives edges about as soft as those of real strokes.
        inside = torch.sigmoid(3 * self.reach * (2 * fields[0] - 1))
        return [inside if self.kind == "strokes" else inside * fields[1]]


def _distance(image: Tensor, edge: float, reach: float) -> Tensor:
    """Signed distance to the edge, positive inside, cut at the reach and brought to [0, 1]: (h, w) -> (h, w)."""
    inside = image > edge
    signed = torch.where(inside, _nearest(~inside, reach) - 0.5, 0.5 - _nearest(inside, reach))
    if edge >= 0.5:  # along the edge of a stroke its brightness says where in the pixel it runs
        signed = torch.where(signed.abs() < 1, 0.5 * signed + 0.5 * (image - 0.5), signed)
    return (signed.clamp(-reach, reach) / reach + 1) / 2


def _nearest(there: Tensor, reach: float) -> Tensor:
    """Distance of every pixel to the nearest one that is there, as far as the reach: columns first, then rows."""
    window = math.ceil(reach) + 1
    far = float(window**2)
    squares = torch.where(there, 0.0, far)
    for axis, border in ((0, (0, 0, window, window)), (1, (window, window, 0, 0))):
        wide, side = F.pad(squares, border, value=far), there.shape[axis]
        steps = range(-window, window + 1)
        squares = torch.stack([wide.narrow(axis, window + s, side) + s * s for s in steps]).amin(0)
    return squares.sqrt()


def _continued(image: Tensor, edge: float) -> Tensor:
    """The image with its ground filled by the tones that are near: (h, w) -> (h, w)."""
    inside = (image > edge).float()
    mean = (image * inside).sum() / inside.sum().clamp(min=1)
    deviation = max(image.shape) / 7
    tones, weights = _blurred(image * inside, deviation) + 1e-3 * mean, _blurred(inside, deviation) + 1e-3
    return torch.where(inside > 0, image, tones / weights)


def _blurred(image: Tensor, deviation: float) -> Tensor:
    down, across = (_bell(side, deviation) for side in image.shape)
    return down @ image @ across


def _bell(side: int, deviation: float) -> Tensor:
    """Gaussian blur along one side as a matrix, with zero padding."""
    distance = torch.arange(side)[:, None] - torch.arange(side)
    bell = torch.exp(-distance.square() / (2 * deviation**2))
    return bell / (deviation * math.sqrt(2 * math.pi))
