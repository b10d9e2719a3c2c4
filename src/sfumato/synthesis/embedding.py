"""Mean embeddings of classes and class sizes from one noisy sum, and the distance of generated images to them.

The row of a record is a feature vector of norm up to 1 with a constant in front, whose sum gives the class size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sfumato.values import Spec


def squared_mmd(made: Tensor, embedding: Tensor) -> Tensor:
    """Unbiased |embedding - mean phi(G(z))|^2 for each class, of (k, b, d) against (k, d).

    The plain estimate is too large by (mean |phi|^2 - |mean|^2) / b, which rewards a generator for making all
    images of a class alike; a sum over pairs of different images does not.
    """
    b, mean = made.shape[1], made.mean(dim=1)
    pairs = (b * mean.square().sum(-1) - made.square().sum(-1).mean(1)) / (b - 1)  # without the diagonal
    return pairs - 2 * (mean * embedding).sum(-1) + embedding.square().sum(-1)


def with_count(vector: Tensor, share: float) -> Tensor:
    """The row of a record: a constant with this share of the squared norm, then the vector of norm up to 1, scaled."""
    return torch.cat([vector.new_full((1,), math.sqrt(share)), math.sqrt(1 - share) * vector])


def count_share_for(spec: Spec, epsilon: float) -> float:
    """The share at which one Gaussian sum, with noise of about 4 / epsilon, gives class sizes to within 5 %.

    At most a tenth: more was worse on digits.
    """
    noise = 4 / epsilon * len(spec.classes) / max(spec.count, 1)
    return min(0.1, max(0.01, (noise / 0.05) ** 2))


def mean_embedding(sums: Tensor, *, share: float, noise: float) -> tuple[Tensor, Tensor]:
    """The mean of each class (k, d) from noisy sums (k, 1 + d), and its reliability (k,).

    Reliability falls with the noise in the squared norm of a mean, so that a noisy class has little weight in the loss.
    """
    sizes = class_sizes(sums[:, 0], share=share, noise=noise)
    embedding = sums[:, 1:] / (math.sqrt(1 - share) * sizes[:, None])
    energy = embedding.shape[1] * (noise / sizes).square() / (1 - share)
    return embedding.float(), (1 / (1 + energy)).float()


def class_sizes(noisy: Tensor, *, share: float, noise: float) -> Tensor:
    """The number of records of each class, from noisy sums of the constant sqrt(share).

    Sizes are shrunk to their mean, by how far their differences exceed the noise (empirical Bayes).
    """
    spread, sizes = noise / math.sqrt(share), noisy / math.sqrt(share)
    differ = sizes.var() if sizes.numel() > 1 else sizes.new_zeros(())
    kept = (1 - spread**2 / differ.clamp(min=1e-12)).clamp(min=0)
    likely = sizes.mean() + kept * (sizes - sizes.mean())
    return likely.clamp(min=max(1.0, spread))  # a size below its noise is not usable
