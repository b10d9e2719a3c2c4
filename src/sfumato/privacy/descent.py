"""DP-SGD from the first round to the last: momentum, a cosine, and an average of the weights.

Guarantee: the model moves by noisy gradients alone, one paid round for each step, and not at all after the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from sfumato.privacy.gradients import Loss, noisy_gradient
from sfumato.privacy.private import Query
from sfumato.progress import track

MOMENTUM, AVERAGING = 0.9, 0.95


@dataclass(frozen=True)
class Descent:
    """How to go down; every number public."""

    l2_bound: float
    rate: float  # at the start; it ends at a tenth
    weight_decay: float = 0.0


def descend(query: Query, model: nn.Module, loss: Loss, descent: Descent, *, what: str) -> None:
    """Train the model in place by all rounds of the query; its weights become an average over the last ones."""
    optimizer = torch.optim.SGD(model.parameters(), descent.rate, MOMENTUM, weight_decay=descent.weight_decay)
    averages, rounds = [torch.zeros_like(p) for p in model.parameters()], query.rounds
    for step in track(range(rounds), what=what, total=rounds):
        for group in optimizer.param_groups:
            group["lr"] = descent.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * step / rounds)))
        noisy_gradient(query, model, loss, l2_bound=descent.l2_bound)
        optimizer.step()
        for average, weight in zip(averages, model.parameters(), strict=True):
            average.lerp_(weight.detach(), 1 - AVERAGING)
    for average, weight in zip(averages, model.parameters(), strict=True):
        weight.data = average / (1 - AVERAGING**rounds)  # it began at zero
    model.requires_grad_(False)
