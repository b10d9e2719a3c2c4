"""An image's row is its gradient: one round of DP-SGD, for any optimizer on top.

Rows are made one by one (`vmap` of `grad`: the reference), or, where the layers allow it, never: the book-keeping
of Bu et al. (2023) takes each layer's input and output gradient, one record at a time, and `layers.py` finds norms
and sums from those.

Guarantee: each record's gradient, averaged over its `multiplicity` draws, is bounded as one row; momentum,
Adam and weight averages then work on noisy sums only, which is post-processing.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from sfumato.errors import UsageError
from sfumato.privacy.layers import probed_output, shares, supports
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.privacy.private import Query
from sfumato.privacy.rows import Rows
from sfumato.values import Spec

Loss = Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]  # (model, one image, its label) to a scalar

ACTIVATION_BYTES = 1 << 28  # the layers' inputs and output gradients in one microbatch
SLACK = 2.0**-10  # for float32 sums: an allowance that tests measure, not a proof


def noisy_gradient(query: Query, model: nn.Module, loss: Loss, *, l2_bound: float, multiplicity: int = 1) -> None:
    """Ask one round and put the noisy mean gradient into the model's `.grad`, for an optimizer to step.

    The sum is divided by the expected batch, a public number; the batch that was drawn stays secret.
    """
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()):
        raise UsageError("Expected a model without batch norm, which mixes records.", fix="use GroupNorm")
    weights = _Weights(model)
    taps = _taps(weights, loss, query.spec) if multiplicity == 1 else None
    closed = taps and ClosedRows(weights, loss, taps, l2_bound)
    rows = closed or Rows(_reference(weights, loss, multiplicity), l2_bound)
    noisy = query._ask(rows)[0] / (query.spec.count * query.mechanism.sampling)
    parts = torch.split(noisy, [p.numel() for p in weights.trained.values()])
    for name, part in zip(weights.trained, parts, strict=True):
        weight = model.get_parameter(name)
        weight.grad = part.reshape(weight.shape).to(weight.dtype)


class _Weights:
    """A model's parameters apart from the model: those that are trained, and the rest."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        last = not any(isinstance(layer, nn.GroupNorm) for layer in model.modules())
        self.trained = {name: _laid_out(p, last) for name, p in model.named_parameters() if p.requires_grad}
        self.fixed = {name: _laid_out(p, last) for name, p in model.named_parameters() if not p.requires_grad}
        self.fixed |= {name: b.detach() for name, b in model.named_buffers()}

    def model_with(self, trained: dict[str, Tensor]) -> Callable[..., Tensor]:
        weights = {**self.fixed, **trained}
        return lambda *inputs: functional_call(self.model, weights, inputs)


def _laid_out(weight: Tensor, channels_last: bool) -> Tensor:
    """Kernels with channels last make outputs so, which pooling on a CPU likes; group norm undoes it."""
    if weight.dim() != 4 or not channels_last:
        return weight.detach()
    return torch.empty_like(weight, memory_format=torch.channels_last).copy_(weight.detach()).detach()


def _reference(weights: _Weights, loss: Loss, multiplicity: int) -> Callable[[Tensor, Tensor], Tensor]:
    def row(image: Tensor, label: Tensor) -> Tensor:
        def mean_loss(trained: dict[str, Tensor]) -> Tensor:
            call = weights.model_with(trained)
            return torch.stack([loss(call, image, label) for _ in range(multiplicity)]).mean()

        return torch.cat([g.flatten() for g in grad(mean_loss)(weights.trained).values()])

    return row


class _Tap(NamedTuple):
    """A layer whose input and output gradient are noted, and what is known of it before any data."""

    layer: nn.Module
    trained: set[str]  # names of its own trained parameters
    input: Tensor  # of a blank image, like `output`
    version: int  # of the input when it was noted
    output: Tensor


@contextlib.contextmanager
def _instead(layers: dict[str, nn.Module], forward: Callable[..., Tensor]) -> Iterator[None]:
    """Let `forward` (name, layer, input) do the layers' work."""
    for name, layer in layers.items():
        layer.forward = functools.partial(forward, name, layer)
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def _taps(weights: _Weights, loss: Loss, spec: Spec) -> dict[str, _Tap] | None:
    """The layers that hold every trained parameter, if each has a closed form and is called once; else nothing.

    Found on a blank image, so that it does not depend on the data.
    """
    trained: dict[str, set[str]] = {}
    for name in weights.trained:
        owner, _, own = name.rpartition(".")
        trained.setdefault(owner, set()).add(own)
    layers = {owner: weights.model.get_submodule(owner) for owner in trained}
    if not layers or not all(supports(layer) for layer in layers.values()):
        return None
    taps: dict[str, _Tap] = {}
    twice: list[str] = []

    def note(name: str, layer: nn.Module, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        output: Tensor = type(layer).forward(layer, input)
        twice.extend([name] if name in taps else [])
        taps[name] = _Tap(layer, trained[name], input, input._version, output)
        return output.detach()

    with torch.enable_grad(), _instead(layers, note):
        loose = {name: w.detach().requires_grad_() for name, w in weights.trained.items()}
        value = loss(weights.model_with(loose), torch.zeros(spec.shape), torch.zeros((), dtype=torch.int64))
    # with every output cut off, a loss or an input that still hangs on a weight reached it around its layer, as tied
    # weights do
    around = value.requires_grad or any(tap.input.requires_grad for tap in taps.values())
    altered = any(tap.input._version != tap.version for tap in taps.values())
    return None if around or altered or twice or len(taps) < len(layers) else taps


class ClosedRows(Rows):
    """Gradients as rows that are never made.

    Guarantee: as for `exact_sum`, with an allowance: clipped sums are added in float and rounded to the lattice once,
    which moves the difference of two neighbours by at most one step per value; rows are cut shorter by that and by
    SLACK for float32 errors of norms and sums, which tests measure on hostile records but nobody has proved.
    """

    def __init__(self, weights: _Weights, loss: Loss, taps: dict[str, _Tap], l2_bound: float) -> None:
        super().__init__(self._book, l2_bound)  # type: ignore[arg-type]
        self._weights, self._loss, self._taps = weights, loss, taps
        self._width = sum(w.numel() for w in weights.trained.values())
        self._probes = {name: torch.zeros_like(tap.output) for name, tap in taps.items()}

    def shape(self, spec: Spec) -> torch.Size:
        return torch.Size((1, self._width))

    def microbatch(self, width: int) -> int:
        values = sum(tap.input.numel() + tap.output.numel() for tap in self._taps.values())
        convolutions = any(isinstance(tap.layer, nn.Conv2d) for tap in self._taps.values())
        most = 144 if convolutions else 4096  # beyond 144, kernels' gradients take memory and save no time
        return max(16, min(most, ACTIVATION_BYTES // (4 * values)))

    def _book(self, image: Tensor, label: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One record's inputs and output gradients, by layer."""
        call, noted = self._weights.model_with(self._weights.trained), dict[str, Tensor]()

        def probed(probes: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            def note(name: str, layer: nn.Module, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
                seen, output = probed_output(layer, input, probes[name])
                if name in noted or output.shape != probes[name].shape:
                    raise UsageError("Expected a model that does the same at every call.", where=name)
                noted[name] = seen
                return output

            with _instead({name: tap.layer for name, tap in self._taps.items()}, note):
                return self._loss(call, image, label), noted

        gradients, inputs = grad(probed, has_aux=True)(self._probes)
        return inputs, gradients

    def add_to(self, total: Tensor, images: Tensor, labels: Tensor, present: Tensor, *, clip: bool) -> None:
        """Add the clipped gradients of a microbatch, in units of the lattice."""
        inputs, gradients = self.mapped(images, labels)
        found: dict[str, Any] = {}
        for name, tap in self._taps.items():
            a, g = inputs.pop(name), gradients.pop(name)
            found |= {f"{name}.{own}".lstrip("."): s for own, s in shares(tap.layer, a, g, tap.trained).items()}
        norms = torch.stack([share.squares for share in found.values()]).sum(0).sqrt()
        scale = self._scales(norms, present, clip=clip).float()
        start = 0
        for name, weight in self._weights.trained.items():
            total[0, start : start + weight.numel()] += found[name].summed(scale)
            start += weight.numel()

    def _scales(self, norms: Tensor, present: Tensor, *, clip: bool) -> Tensor:
        """What each record's gradient is multiplied by; nothing if it is absent or not finite."""
        scale = torch.full_like(norms, 1 / self.l2_bound)
        if clip:
            longest = 1 - math.sqrt(self._width) * 2.0**-LATTICE_BITS - SLACK
            scale = torch.minimum(scale * longest, longest / norms)
        return torch.where(present & torch.isfinite(norms), scale, 0.0) * 2.0**LATTICE_BITS
