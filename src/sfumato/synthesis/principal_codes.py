"""Images as standardised coordinates along the principal axes of other images, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_IMAGES = 8_000  # that the axes are computed from
LARGEST_SIDE = 64  # pixels; of larger images the finer structure is not coded
AT_A_TIME = 1_024  # images that are coded at once
OVERSAMPLED = 16  # further axes that make the others exact (Halko, Martinsson and Tropp 2011)


@dataclass(frozen=True)
class PrincipalCodes:
    """An encoder and decoder of images of one shape."""

    mean: Tensor  # (d,)
    axes: Tensor  # (d, r), orthonormal
    deviations: Tensor  # (r,), of the images along each axis
    coded: tuple[int, int, int]  # the shape that is coded

    @classmethod
    def of(cls, pixels: Tensor, count: int, generator: torch.Generator) -> PrincipalCodes:
        """The first `count` axes of images (n, c, h, w), or as many as they have."""
        some = pixels[torch.randperm(len(pixels), generator=generator)[:MOST_IMAGES]]
        channels, height, width = some.shape[1:]
        factor = min(1.0, LARGEST_SIDE / max(height, width))
        coded = (channels, max(1, round(height * factor)), max(1, round(width * factor)))
        rows = _resized(some, coded).flatten(1)
        mean = rows.mean(0)
        rows -= mean
        rank = max(1, min(count, len(rows) - 1, rows.shape[1]))
        axes, energies = _principal_axes(rows, rank, generator)
        return cls(mean, axes, (energies / len(rows)).sqrt().clamp(min=1e-6), coded)

    def encode(self, pixels: Tensor) -> Tensor:  # uint8 (n, c, h, w) -> (n, r)
        parts = [(self._rows(part) - self.mean) @ self.axes for part in torch.split(pixels, AT_A_TIME)]
        return torch.cat(parts) / self.deviations

    def moved(self, pixels: Tensor, codes: Tensor, *, detail: float) -> Tensor:
        """The images with other codes; of what is not coded (fine structure), the share `detail` stays."""
        made = []
        for part, theirs in zip(torch.split(pixels, AT_A_TIME), torch.split(codes, AT_A_TIME), strict=True):
            ours = (self._rows(part) - self.mean) @ self.axes  # (b, r)
            shape = (len(part), *self.coded)
            smooth = self.mean + theirs * self.deviations @ self.axes.T
            if detail:
                change = (smooth - self.mean - ours @ self.axes.T).view(shape)  # of the coded part
                kept = _back(change, part.shape[1:]) + part.float() / 255
                image = detail * kept + (1 - detail) * _back(smooth.view(shape), part.shape[1:])
            else:
                image = _back(smooth.view(shape), part.shape[1:])
            made.append((image.clamp(0, 1) * 255).round().to(torch.uint8))
        return torch.cat(made)

    def _rows(self, pixels: Tensor) -> Tensor:
        return _resized(pixels, self.coded).flatten(1)


def _resized(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:  # uint8 -> float in [0, 1]
    images = pixels.float() / 255
    if tuple(images.shape[2:]) == shape[1:]:
        return images
    return F.interpolate(images, size=shape[1:], mode="bilinear", antialias=True)


def _back(images: Tensor, shape: torch.Size) -> Tensor:
    return images if images.shape[2:] == shape[1:] else F.interpolate(images, size=tuple(shape[1:]), mode="bicubic")


def _principal_axes(rows: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Orthonormal axes (d, rank) and the energies (rank,) of centred rows along them, by subspace iteration."""
    wide = min(rank + OVERSAMPLED, *rows.shape)
    basis = rows.T @ torch.randn(len(rows), wide, generator=generator)
    for _ in range(3):
        basis, _triangle = torch.linalg.qr(basis)
        basis = rows.T @ (rows @ basis)
    basis, _triangle = torch.linalg.qr(basis)
    _left, singular, right = torch.linalg.svd(rows @ basis, full_matrices=False)
    return (basis @ right.T)[:, :rank].contiguous(), singular[:rank].square()
