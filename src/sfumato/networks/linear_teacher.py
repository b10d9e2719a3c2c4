"""A linear classifier on fixed features, with the whitening that lets few noisy steps train it."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

CONSTANT = 0.3  # a feature in place of a bias, which would need a clipping bound of its own


class Features(Protocol):
    """Fixed features: rows of unit length."""

    shape: torch.Size

    def __call__(self, images: Tensor) -> Tensor: ...  # (b, c, h, w) in [0, 1] -> (b, *shape)


class WhitenedFeatures(nn.Module):
    """Partially whitened features: centred, strong directions reduced, again of unit length.

    In few noisy steps a linear head learns only along strong directions, and a common mean of the features takes up
    most of the clipping bound. Mean and covariance are estimated on example images that resemble the private ones but
    are not private.
    """

    mean: Tensor
    axes: Tensor
    excess: Tensor

    def __init__(self, features: Features, examples: Tensor, *, level: float, affine: bool = False) -> None:
        """Variances are reduced to about `level` times the largest; examples are uint8.

        Where they are `affine` in the given features, they are not brought to unit length again, but divided by their
        median length. A linear teacher is then a linear function of the given features, too.
        """
        super().__init__()
        self.features, self.shape = features, features.shape
        with torch.no_grad():
            maps = torch.cat([features(part.float() / 255) for part in torch.split(examples, 500)]).flatten(1)
        mean = maps.mean(0)
        spread = (maps - mean) / math.sqrt(len(maps))
        values, axes = _principal_axes(spread)
        kept = values > max(0.1 * level * float(values[-1]), 1e-12)  # weaker directions would hardly change
        values, axes = values[kept], axes[:, kept]
        floor = level * values[-1:]
        self.register_buffer("mean", mean)
        self.register_buffer("axes", axes)  # (d, r)
        self.register_buffer("excess", 1 - (floor / (values + floor)).sqrt())
        # Private features are kept in half precision, which holds no number beyond 65,504.
        self.median = float(_lengths(self._even(maps)).median().clamp(min=1e-3)) if affine else None

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, *shape)
        even = self._even(self.features(images).flatten(1))
        scaled = even / (_lengths(even).clamp(min=1e-6) if self.median is None else self.median)
        return scaled.reshape(-1, *self.shape)

    def in_given_features(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """A linear map (o, d + 1) of affine features and `CONSTANT`, as weight (o, d) and bias on the given ones."""
        if self.median is None:
            raise ValueError("Expected affine features: a linear map of others is none of the given features.")
        kernel = weight[:, :-1] / self.median
        kernel = kernel - (kernel @ self.axes * self.excess) @ self.axes.T
        return kernel, CONSTANT * weight[:, -1] - kernel @ self.mean

    def _even(self, maps: Tensor) -> Tensor:
        away = maps - self.mean
        return away - (away @ self.axes * self.excess) @ self.axes.T


def _lengths(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return lengths


def _principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors (d, r) of the sum of outer products of the rows (n, d)."""
    wide = rows.shape[1] > len(rows)
    gram = rows @ rows.T if wide else rows.T @ rows  # both have the same spectrum
    # in double: in single precision LAPACK may not converge where many eigenvalues are nearly 0
    values, axes = (part.to(rows.dtype) for part in torch.linalg.eigh(gram.double()))
    return values, rows.T @ (axes / values.clamp(min=1e-12).sqrt()) if wide else axes


class LinearHead(nn.Module):
    """Logits of feature maps, from zero weights."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features + 1, classes, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, features: Tensor) -> Tensor:
        flat = features.flatten(1)
        constant = flat.new_full((1, 1), CONSTANT).expand(len(flat), 1)
        logits: Tensor = self.linear(torch.cat([flat, constant], dim=1))
        return logits


class LinearTeacher(nn.Module):
    """Fixed features and a trained linear head: (n, c, h, w) uint8 -> logits (n, k)."""

    def __init__(self, features: nn.Module, head: LinearHead) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(pixels.float() / 255))
        return logits
