"""A whole training by DP-SGD: momentum, a cosine schedule, and an average of the weights.

Guarantee: the model changes by noisy gradients only, one paid round for each step, and not at all after the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from sfumato.privacy.gradients.reference import Loss
from sfumato.privacy.gradients.step import noisy_gradient
from sfumato.privacy.private import Query
from sfumato.progress import track

MOMENTUM = 0.9
AVERAGING = 0.95  # the share of the average that stays when a step's weights are added to it


@dataclass(frozen=True)
class Descent:
    """The settings of a training; every number is public."""

    l2_bound: float
    rate: float  # the learning rate at the start; it ends at a tenth of that
    weight_decay: float = 0.0


def descend(query: Query, model: nn.Module, loss: Loss, descent: Descent, *, what: str) -> None:
    """Train the model in place by all rounds of the query; its weights become an average over the last ones."""
    optimizer = torch.optim.SGD(model.parameters(), descent.rate, MOMENTUM, weight_decay=descent.weight_decay)
    averages = [torch.zeros_like(parameter) for parameter in model.parameters()]
    rounds = query.rounds
    for step in track(range(rounds), what=what, total=rounds):
        cosine = 0.5 * (1 + math.cos(math.pi * step / rounds))  # from 1 to 0
        for group in optimizer.param_groups:
            group["lr"] = descent.rate * (0.1 + 0.9 * cosine)
        noisy_gradient(query, model, loss, l2_bound=descent.l2_bound)
        optimizer.step()
        for average, parameter in zip(averages, model.parameters(), strict=True):
            average.lerp_(parameter.detach(), 1 - AVERAGING)
    for average, parameter in zip(averages, model.parameters(), strict=True):
        parameter.data = average / (1 - AVERAGING**rounds)  # the average began at zero, which this corrects
    model.requires_grad_(False)
