"""A head that tells an attribute from pooled features of a diffusion model, and adapters that take it away from it.

DECO-Bench says "cross-entropy on the privacy attribute" and not which way. There are two readings. `remove`: the head
learns the attribute, and the adapters learn features on which it answers the shares of the classes whatever it is
shown. This is the confusion loss (Tzeng et al. 2015); the reversed gradient of the cross-entropy itself has no lower
bound, and adapters follow it by spoiling the features. `predict`: the head learns, and the adapters only denoise.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

READINGS = ("remove", "predict")
HIDDEN = 128


class AttributeHead:
    """The cross-entropy objective: a small perceptron on pooled features; it follows `Objective`."""

    def __init__(self, features: int, labels: Tensor, classes: int, *, reading: str, seed: int) -> None:
        self.reading = reading
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head: nn.Module = nn.Sequential(
                nn.LayerNorm(features), nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)
            )
        self.shares = torch.bincount(labels, minlength=classes).float() / len(labels)

    def for_head(self, pooled: Tensor, labels: Tensor) -> Tensor:
        """The head's own loss."""
        return cross_entropy(self.head(pooled), labels)

    def for_adapters(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
        """How far the head's answers are from the shares of the classes, or nothing."""
        if self.reading == "predict":
            return pooled.new_zeros(())
        return -(self.shares * log_softmax(self.head(pooled), dim=1)).sum(dim=1).mean()

    def for_validation(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
        """What shall be low for images that train nothing."""
        if self.reading == "predict":
            return self.for_head(pooled, labels)
        return self.for_adapters(pooled, labels, draw)
