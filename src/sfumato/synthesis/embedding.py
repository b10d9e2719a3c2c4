"""Mean embeddings of classes: one noisy sum gives them and how many records each stands for; how far images are.

A record adds to the row of its class a vector of norm up to 1, behind a constant that counts: class sizes are private.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sfumato.values import Spec


def squared_mmd(made: Tensor, embedding: Tensor) -> Tensor:
    """For each class |embedding - mean phi(G(z))|^2 of (k, b, d) against (k, d), without bias.

    The plain estimate is too large by (mean |phi|^2 - |mean|^2) / b, which rewards a generator for making all
    images of a class alike; a sum over pairs of different images does not.
    """
    b, mean = made.shape[1], made.mean(dim=1)
    pairs = (b * mean.square().sum(-1) - made.square().sum(-1).mean(1)) / (b - 1)  # without the diagonal
    return pairs - 2 * (mean * embedding).sum(-1) + embedding.square().sum(-1)


def with_count(vector: Tensor, share: float) -> Tensor:
    """A vector of norm up to 1 behind a constant that counts, with that share of the squared norm of both."""
    return torch.cat([vector.new_full((1,), math.sqrt(share)), math.sqrt(1 - share) * vector])


def count_share_for(spec: Spec, epsilon: float) -> float:
    """The share with which one Gaussian release, whose noise is about 4 / epsilon, tells class sizes to 5 %.

    Never more than a tenth: the digits do worse then.
    """
    noise = 4 / epsilon * len(spec.classes) / max(spec.count, 1)
    return min(0.1, max(0.01, (noise / 0.05) ** 2))


def mean_embedding(sums: Tensor, *, share: float, noise: float) -> tuple[Tensor, Tensor]:
    """From noisy sums (k, 1 + d) of with_count rows the mean of each class (k, d), and how far to trust it (k,).

    Trust falls with what noise adds to the squared norm of a mean: a class that is mostly noise should not steer.
    """
    sizes = class_sizes(sums[:, 0], share=share, noise=noise)
    embedding = sums[:, 1:] / (math.sqrt(1 - share) * sizes[:, None])
    energy = embedding.shape[1] * (noise / sizes).square() / (1 - share)
    return embedding.float(), (1 / (1 + energy)).float()


def class_sizes(noisy: Tensor, *, share: float, noise: float) -> Tensor:
    """How many records each class has, from the noisy sums of the constant feature sqrt(share).

    As far as noise alone could have made sizes differ they are taken to be alike (empirical Bayes).
    """
    spread, sizes = noise / math.sqrt(share), noisy / math.sqrt(share)
    differ = sizes.var() if sizes.numel() > 1 else sizes.new_zeros(())
    kept = (1 - spread**2 / differ.clamp(min=1e-12)).clamp(min=0)
    likely = sizes.mean() + kept * (sizes - sizes.mean())
    return likely.clamp(min=max(1.0, spread))  # below its noise a size says nothing
