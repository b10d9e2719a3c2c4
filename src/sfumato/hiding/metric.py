"""Metric learning (DECO-Bench): a diffusion model re-generates the image, adapted by a triplet loss on its features.

For an image a, another p and a third n the loss is max(0, d(a, p) - d(a, n) + 0.3), with the distances of the pooled
features of the middle block at length 1. There is no head, so the method knows nothing of the attribute that could be
asked of the released images.

What the supplement leaves open, and what is done here:

- Which images make a triplet: the setting `policy`. "mix" (default): p has another value of the attribute and n the
  same, so that the features forget it. "separate": the usual way round, which makes them tell it.
- Which of the images in a batch: one p and one n for each a, drawn at random; an image without one is left out.

There is no epsilon here: what is hidden is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from sfumato.contracts import Checkpoints, Hider
from sfumato.errors import expect_one_of, expect_within
from sfumato.synthesis.decoupled_regeneration import DecoupledRegeneration
from sfumato.values import Images, Rewriter

MARGIN = 0.3
POLICIES = ("mix", "separate")
NO_ROOT_OF_ZERO = 1e-12  # the gradient of a distance of zero would not be finite


def triplets(labels: Tensor, policy: str, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Row numbers of images a, p and n; a is every image that has both."""
    same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    other = labels[:, None] != labels
    near, far = (other, same) if policy == "mix" else (same, other)
    order = torch.rand(2, len(labels), len(labels), generator=draw) + 1e-6  # above 0, which stands for no candidate
    rows = (near.any(dim=1) & far.any(dim=1)).nonzero()[:, 0]
    return rows, (order[0] * near).argmax(dim=1)[rows], (order[1] * far).argmax(dim=1)[rows]


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """The mean of max(0, d(a, p) - d(a, n) + margin) for features (n, f); 0 where there are none."""
    near = (anchors - positives).square().sum(dim=1).clamp(min=NO_ROOT_OF_ZERO).sqrt()
    far = (anchors - negatives).square().sum(dim=1).clamp(min=NO_ROOT_OF_ZERO).sqrt()
    return relu(near - far + margin).sum() / max(1, len(anchors))


class _Triplets:
    """The triplet objective; it follows `Objective`."""

    head: nn.Module | None = None

    def __init__(self, policy: str, margin: float) -> None:
        self.policy, self.margin = policy, margin

    def for_head(self, pooled: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError("There is no head.")

    def for_adapters(self, pooled: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
        anchors, positives, negatives = triplets(labels, self.policy, draw)
        features = normalize(pooled, dim=1)
        return triplet_loss(features[anchors], features[positives], features[negatives], self.margin)

    for_validation = for_adapters


@dataclass(frozen=True)
class Metric(DecoupledRegeneration, Hider):
    """Hyperparameters: those of `DecoupledRegeneration`, and the triplets'."""

    published_rate: ClassVar[float] = 1e-4

    policy: str = "mix"  # or "separate"
    margin: float = MARGIN

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, policy=POLICIES)
        expect_within(self, margin=(0, 1e6))

    def fit(self, train: Images, validation: Images, *, checkpoints: Checkpoints) -> Rewriter:
        model, _ = self.begun(train, validation, checkpoints)
        objective = _Triplets(self.policy, self.margin)
        return self.rewriter(model, objective, train, validation, checkpoints, name="metric")
