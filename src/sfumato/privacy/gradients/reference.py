"""Per-example gradients one by one (`vmap` of `grad`): the reference that the fast path must agree with.

Guarantee: each record's gradient, averaged over its `multiplicity` draws, is one row, and is bounded as one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from sfumato.privacy.rows import Rows

Loss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]  # (model, one image, its label) to a scalar


class ModelWeights:
    """A model's parameters, separate from the model: those that are trained, and the rest."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        channels_last = not any(isinstance(layer, nn.GroupNorm) for layer in model.modules())
        self.trained: dict[str, Tensor] = {}
        self.fixed: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            group = self.trained if parameter.requires_grad else self.fixed
            group[name] = _in_memory_format(parameter, channels_last)
        for name, buffer in model.named_buffers():
            self.fixed[name] = buffer.detach()

    @property
    def width(self) -> int:
        """How many trained values there are: the length of a row."""
        return sum(weight.numel() for weight in self.trained.values())

    def model_with(self, trained: dict[str, Tensor]) -> Callable[..., Tensor]:
        weights = {**self.fixed, **trained}
        return lambda *inputs: functional_call(self.model, weights, inputs)


def _in_memory_format(weight: Tensor, channels_last: bool) -> Tensor:
    """Channels last makes pooling on a CPU faster, because outputs keep that layout; group norm does not keep it."""
    if weight.dim() != 4 or not channels_last:
        return weight.detach()
    return torch.empty_like(weight, memory_format=torch.channels_last).copy_(weight.detach()).detach()


def mean_loss(loss: Loss, model: Callable[..., Tensor], image: Tensor, label: Tensor, multiplicity: int) -> Tensor:
    """The mean over so many evaluations, each of which may augment the image in its own way."""
    return torch.stack([loss(model, image, label) for _ in range(multiplicity)]).mean()


def reference_rows(weights: ModelWeights, loss: Loss, *, l2_bound: float, multiplicity: int = 1) -> Rows:
    """The gradient of each record's mean loss over `multiplicity` evaluations (a loss may augment its image)."""

    def row(image: Tensor, label: Tensor) -> Tensor:
        def of(trained: dict[str, Tensor]) -> Tensor:
            return mean_loss(loss, weights.model_with(trained), image, label, multiplicity)

        gradients = grad(of)(weights.trained)
        return torch.cat([gradient.flatten() for gradient in gradients.values()])

    return Rows(row, l2_bound)
