"""Filters from images without labels: whitened patches (Coates, Lee and Ng 2011)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from sfumato.networks.patches import CONTRAST, PATCH

STEP = 3  # pixels between two patches of an image
PATCHES = 60_000  # from which the whitening is estimated
REGULARISATION = 0.1  # added to the variances of the patches


def patch_filters(images: Tensor, count: int, draw: Generator) -> tuple[Tensor, Tensor]:
    """Weights (count, c, p, p), each of mean zero, and biases (count,) of filters for images (n, c, h, w) in [0, 1]."""
    patches = F.unfold(images, PATCH, stride=STEP).transpose(1, 2).reshape(-1, images.shape[1] * PATCH**2)
    patches = patches[torch.randperm(len(patches), generator=draw)[:PATCHES]]
    centred = patches - patches.mean(1, keepdim=True)
    normalised = centred / (centred.square().mean(1, keepdim=True) + CONTRAST).sqrt()
    mean = normalised.mean(0)
    values, axes = torch.linalg.eigh(torch.cov((normalised - mean).T))
    whitening = axes @ torch.diag((values + REGULARISATION).rsqrt()) @ axes.T
    whitened = (normalised - mean) @ whitening
    lengths = torch.linalg.vector_norm(whitened, dim=1)
    distinct = F.normalize(whitened[lengths > lengths.median()], dim=1)  # flat patches make poor filters
    chosen = distinct[torch.randperm(len(distinct), generator=draw)[:count]] @ whitening
    weights = chosen - chosen.mean(1, keepdim=True)
    return weights.reshape(count, images.shape[1], PATCH, PATCH), -(chosen @ mean)
