"""The noisy mean of random Fourier features of each class, and how near generated images are to it.

Harder, Adamczewski, Park (2021): the means of all classes are one question, and everything after it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato.privacy import Query
from sfumato.synthesis.embedding import mean_embedding, squared_mmd, with_count
from sfumato.values import Spec

PURPOSE = "the mean random Fourier features of each class, and how large the class is"


@dataclass(frozen=True)
class FourierEmbedding:
    """Noisy mean features of the classes."""

    omega: Tensor  # (d / 2, pixels), the frequencies
    target: Tensor  # (k, d)
    reliability: Tensor  # (k,), the weight of a class in the distance

    @classmethod
    def asked(cls, query: Query, omega: Tensor, *, count_share: float) -> Self:
        """Ask for the joint embedding sum_i phi(x_i) (x) onehot(y_i): one row for each class, with its size."""

        def contribution(image: Tensor, label: Tensor) -> Tensor:
            return with_count(features(image.flatten(), omega), count_share)

        sums = query.per_class(contribution, l2_bound=1.0)  # (k, 1 + d)
        noise = query.mechanism.noise_multiplier or 0.0
        return cls(omega, *mean_embedding(sums, share=count_share, noise=noise))

    def distance(self, images: Tensor) -> Tensor:
        """Of images (k, b, c, h, w) of all classes."""
        return (self.reliability * squared_mmd(features(images.flatten(2), self.omega), self.target)).mean()

    def likeness(self, images: Tensor, labels: Tensor) -> Tensor:
        """Of each image to its class."""
        return (features(images.flatten(1), self.omega) * self.target[labels]).sum(1)


def frequencies(spec: Spec, count: int, length_scales: Sequence[float], draw: torch.Generator) -> Tensor:
    """Draws from the spectral density of a mean of Gaussian kernels: each length-scale equally often.

    Length-scales are relative to the square root of the number of pixels.
    """
    scales = torch.tensor(length_scales).repeat(-(-count // len(length_scales)))
    lengths = scales[:count, None] * math.sqrt(spec.pixels)
    return torch.randn(count, spec.pixels, generator=draw) / lengths


def features(images: Tensor, omega: Tensor) -> Tensor:
    """phi(x) = sqrt(2/D) [cos(w_j^T x), sin(w_j^T x)], j = 1..D/2; its norm is 1 for every x."""
    angles = images @ omega.T  # (..., D/2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(len(omega))
