"""Mean embeddings of classes: how far made images are from one, and how many records it stands for."""

from __future__ import annotations

import math

from torch import Tensor


def squared_mmd(made: Tensor, embedding: Tensor) -> Tensor:
    """For each class |embedding - mean phi(G(z))|^2 of (k, b, d) against (k, d), without bias.

    The plain estimate is too large by (mean |phi|^2 - |mean|^2) / b, which rewards a generator for making all
    images of a class alike; a sum over pairs of different images does not.
    """
    b, mean = made.shape[1], made.mean(dim=1)
    pairs = (b * mean.square().sum(-1) - made.square().sum(-1).mean(1)) / (b - 1)  # without the diagonal
    return pairs - 2 * (mean * embedding).sum(-1) + embedding.square().sum(-1)


def class_sizes(noisy: Tensor, *, share: float, noise: float) -> Tensor:
    """How many records each class has, from the noisy sums of the constant feature sqrt(share)."""
    spread = noise / math.sqrt(share)
    return (noisy / math.sqrt(share)).clamp(min=max(1.0, spread))  # below its noise a size says nothing
