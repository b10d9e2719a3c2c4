"""Clipped sums of per-example gradients without the gradients: the book-keeping of Bu et al. (2023).

Every trained layer's input and output gradient are recorded at each of its calls, one record at a time; `layers` finds
the norms and the clipped sums from those. The gradient of a record is that of its mean loss over `multiplicity`
evaluations, and is one row.

Guarantee: as for `exact_sum`, with an allowance: clipped sums are added in float and rounded to the lattice once,
which moves the difference of two neighbours by at most one step per value; rows are clipped to a bound
that is smaller by that and by SLACK, for float32 errors of norms and sums: tests measure these errors on hostile
records, but there is no proof.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad

from sfumato.errors import UsageError
from sfumato.privacy.gradients.layers import ParameterGradients, parameter_gradients, probed_output, supports
from sfumato.privacy.gradients.reference import Loss, ModelWeights, mean_loss
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.privacy.rows import Rows
from sfumato.values import Spec

ACTIVATION_BYTES = 1 << 28  # the layers' inputs and output gradients in one microbatch
SLACK = 2.0**-10  # for float32 sums: an allowance that tests measure, not a proof


class RecordedCall(NamedTuple):
    """A call of a layer whose input and output gradient are recorded, and what is known of it before any data."""

    input: Tensor  # for a blank image, like `output`
    version: int  # torch's counter of in-place changes of the input, when it was recorded
    output: Tensor


class RecordedLayer(NamedTuple):
    """A layer, the names of its own trained parameters, and its calls in order."""

    layer: nn.Module
    trained: set[str]
    calls: list[RecordedCall]


@contextlib.contextmanager
def _replaced_forward(layers: dict[str, nn.Module], forward: Callable[..., Tensor]) -> Iterator[None]:
    """Within this, `forward` (name, layer, input) is called in place of each layer's own."""
    for name, layer in layers.items():
        layer.forward = functools.partial(forward, name, layer)
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def _owners(weights: ModelWeights) -> dict[str, set[str]]:
    """The names of the layers that own trained parameters, with the parameters' names within them."""
    owners: dict[str, set[str]] = {}
    for name in weights.trained:
        owner, _, own_name = name.rpartition(".")
        owners.setdefault(owner, set()).add(own_name)
    return owners


def record_layers(
    weights: ModelWeights, loss: Loss, spec: Spec, *, multiplicity: int = 1
) -> dict[str, RecordedLayer] | None:
    """The layers that hold every trained parameter, if each is supported and called alike; else None.

    Found on a blank image, so that it does not depend on the data.
    """
    owners = _owners(weights)
    layers = {name: weights.model.get_submodule(name) for name in owners}
    if not layers or not all(supports(layer) for layer in layers.values()):
        return None
    recorded = {name: RecordedLayer(layer, owners[name], []) for name, layer in layers.items()}

    def record(name: str, layer: nn.Module, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        output: Tensor = type(layer).forward(layer, input)
        recorded[name].calls.append(RecordedCall(input, input._version, output))
        return output.detach()

    with torch.enable_grad(), _replaced_forward(layers, record):
        trained = {name: weight.detach().requires_grad_() for name, weight in weights.trained.items()}
        blank_image, label = torch.zeros(spec.shape), torch.zeros((), dtype=torch.int64)
        value = mean_loss(loss, weights.model_with(trained), blank_image, label, multiplicity)
    calls = [call for layer in recorded.values() for call in layer.calls]
    # every output is detached: a loss or an input that still depends on a weight does so around the weight's layer,
    # as tied weights do
    if value.requires_grad or any(call.input.requires_grad for call in calls):
        return None
    if any(call.input._version != call.version for call in calls):  # changed in place afterwards
        return None
    return recorded if all(_called_alike(layer.calls) for layer in recorded.values()) else None


def _called_alike(calls: list[RecordedCall]) -> bool:
    """Whether a layer is called, and always with inputs of the same size, so that its calls can be put together."""
    return len({(call.input.shape[1:], call.output.shape[1:]) for call in calls}) == 1


class FastPathRows(Rows):
    """Gradients as rows that are never made; the guarantee is the module's."""

    def __init__(
        self,
        weights: ModelWeights,
        loss: Loss,
        layers: dict[str, RecordedLayer],
        l2_bound: float,
        *,
        multiplicity: int = 1,
    ) -> None:
        super().__init__(self._record, l2_bound)  # type: ignore[arg-type]
        self._weights = weights
        self._loss = loss
        self._layers = layers
        self._multiplicity = multiplicity
        self._probes = {name: [torch.zeros_like(call.output) for call in layer.calls] for name, layer in layers.items()}

    def shape(self, spec: Spec) -> torch.Size:
        return torch.Size((1, self._weights.width))

    def microbatch(self, width: int) -> int:
        calls = [call for layer in self._layers.values() for call in layer.calls]
        values = sum(call.input.numel() + call.output.numel() for call in calls)
        has_convolutions = any(isinstance(layer.layer, nn.Conv2d) for layer in self._layers.values())
        most = 144 if has_convolutions else 4096  # beyond 144, kernels' gradients take memory and save no time
        return max(16, min(most, ACTIVATION_BYTES // (4 * values)))

    def _record(self, image: Tensor, label: Tensor) -> tuple[dict[str, list[Tensor]], dict[str, list[Tensor]]]:
        """One record's inputs and output gradients, by layer and call."""
        model = self._weights.model_with(self._weights.trained)
        inputs: dict[str, list[Tensor]] = {name: [] for name in self._layers}

        def probed_loss(probes: dict[str, list[Tensor]]) -> tuple[Tensor, dict[str, list[Tensor]]]:
            def forward(name: str, layer: nn.Module, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
                call = len(inputs[name])
                _expect_the_same(call < len(probes[name]), name)
                seen, output = probed_output(layer, input, probes[name][call])
                _expect_the_same(output.shape == probes[name][call].shape, name)
                inputs[name].append(seen)
                return output

            with _replaced_forward({name: layer.layer for name, layer in self._layers.items()}, forward):
                value = mean_loss(self._loss, model, image, label, self._multiplicity)
            for name, seen in inputs.items():
                _expect_the_same(len(seen) == len(probes[name]), name)
            return value, inputs

        output_gradients, recorded_inputs = grad(probed_loss, has_aux=True)(self._probes)
        return recorded_inputs, output_gradients

    def add_to(self, total: Tensor, images: Tensor, labels: Tensor, present: Tensor, *, clip: bool) -> None:
        """Add the clipped gradients of a microbatch, in units of the lattice."""
        inputs, output_gradients = self.mapped(images, labels)
        gradients: dict[str, ParameterGradients] = {}
        for name, recorded in self._layers.items():
            seen = inputs.pop(name)  # popped, so that memory is free as soon as it is used
            at_outputs = output_gradients.pop(name)
            of_layer = parameter_gradients(recorded.layer, seen, at_outputs, recorded.trained)
            for own_name, gradient in of_layer.items():
                gradients[f"{name}.{own_name}".lstrip(".")] = gradient
        norms = torch.stack([gradient.squared_norms for gradient in gradients.values()]).sum(0).sqrt()
        scale = self._scales(norms, present, clip=clip).float()
        start = 0
        for name, weight in self._weights.trained.items():
            end = start + weight.numel()
            total[0, start:end] += gradients[name].weighted_sum(scale)
            start = end

    def _scales(self, norms: Tensor, present: Tensor, *, clip: bool) -> Tensor:
        """What each record's gradient is multiplied by: zero if it is absent or not finite."""
        scale = torch.full_like(norms, 1 / self.l2_bound)
        if clip:
            longest = 1 - math.sqrt(self._weights.width) * 2.0**-LATTICE_BITS - SLACK
            scale = torch.minimum(scale * longest, longest / norms)
        return torch.where(present & torch.isfinite(norms), scale, 0.0) * 2.0**LATTICE_BITS


def _expect_the_same(same: bool, where: str) -> None:
    if not same:
        raise UsageError("Expected a model that does the same at every call.", where=where)
