"""One round of DP-SGD: a noisy mean gradient, for any optimizer on top.

Guarantee: a model's `.grad` is the answer to one charged round and nothing else, so that momentum, Adam and weight
averages, which work on it, are post-processing.
"""

from __future__ import annotations

import torch
from torch import nn

from sfumato.errors import UsageError
from sfumato.privacy.gradients.fast_path import FastPathRows, record_layers
from sfumato.privacy.gradients.reference import Loss, ModelWeights, reference_rows
from sfumato.privacy.private import Query
from sfumato.privacy.rows import Rows
from sfumato.progress import say_once
from sfumato.values import Spec


def noisy_gradient(query: Query, model: nn.Module, loss: Loss, *, l2_bound: float, multiplicity: int = 1) -> None:
    """Ask one round and put the noisy mean gradient into the model's `.grad`, for an optimizer to step.

    The sum is divided by the expected batch size, a public number; the size of the batch that was drawn stays secret.
    """
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()):
        raise UsageError("Expected a model without batch norm, which mixes records.", fix="use GroupNorm")
    weights = ModelWeights(model)
    rows = _rows(weights, loss, query.spec, l2_bound=l2_bound, multiplicity=multiplicity)
    expected_batch = query.spec.count * query.mechanism.sampling
    noisy = query._ask(rows)[0] / expected_batch
    parts = torch.split(noisy, [weight.numel() for weight in weights.trained.values()])
    for name, part in zip(weights.trained, parts, strict=True):
        parameter = model.get_parameter(name)
        parameter.grad = part.reshape(parameter.shape).to(parameter.dtype)


def _rows(weights: ModelWeights, loss: Loss, spec: Spec, *, l2_bound: float, multiplicity: int) -> Rows:
    """The fast path where the model allows it, else the reference; data has no part in the decision."""
    layers = record_layers(weights, loss, spec, multiplicity=multiplicity)
    if layers is not None:
        return FastPathRows(weights, loss, layers, l2_bound, multiplicity=multiplicity)
    say_once(
        f"DP-SGD makes the gradient of every record of {type(weights.model).__name__}, which takes several times as "
        "long: the model has trained parameters outside of the layers that docs/dpsgd.md lists."
    )
    return reference_rows(weights, loss, l2_bound=l2_bound, multiplicity=multiplicity)
