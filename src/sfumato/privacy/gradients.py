"""An image's row is its gradient: one round of DP-SGD, for any optimizer on top.

Guarantee: each record's gradient, averaged over its `multiplicity` draws, is bounded as one row; momentum,
Adam and weight averages then work on noisy sums only, which is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from sfumato.errors import UsageError
from sfumato.privacy.private import Query

Loss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]  # (model, one image, its label) to a scalar


def noisy_gradient(query: Query, model: nn.Module, loss: Loss, *, l2_bound: float, multiplicity: int = 1) -> None:
    """Ask one round and put the noisy mean gradient into the model's `.grad`, for an optimizer to step.

    The sum is divided by the expected batch, a public number; the batch that was drawn stays secret.
    """
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()):
        raise UsageError("Expected a model without batch norm, which mixes records.", fix="use GroupNorm")
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    fixed |= {name: b.detach() for name, b in model.named_buffers()}

    def row(image: Tensor, label: Tensor) -> Tensor:
        def mean_loss(weights: dict[str, Tensor]) -> Tensor:
            def call(*inputs: Tensor) -> Tensor:
                return functional_call(model, {**fixed, **weights}, inputs)  # type: ignore[no-any-return]

            return torch.stack([loss(call, image, label) for _ in range(multiplicity)]).mean()

        return torch.cat([g.flatten() for g in grad(mean_loss)(trained).values()])

    noisy = query(row, l2_bound=l2_bound) / (query.spec.count * query.mechanism.sampling)
    parts = torch.split(noisy, [p.numel() for p in trained.values()])
    for name, part in zip(trained, parts, strict=True):
        weight = model.get_parameter(name)
        weight.grad = part.reshape(weight.shape).to(weight.dtype)
