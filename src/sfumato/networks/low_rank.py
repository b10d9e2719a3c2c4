"""Low-rank adapters (Hu et al. 2021, LoRA): frozen linear layers whose weights W become W + scale * B A.

A is Gaussian and B is zero, so that nothing is changed before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sfumato.errors import UsageError


class LowRankLinear(nn.Module):
    """A frozen linear layer and what is added to it."""

    def __init__(self, frozen: nn.Linear, rank: int, draw: torch.Generator) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features, generator=draw) / rank)  # A
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))  # B
        self._original: Tensor | None = None  # W, while B A is fused into the layer

    def forward(self, x: Tensor) -> Tensor:
        plain = linear(x, self.frozen.weight, self.frozen.bias)
        return plain if self._original is not None else plain + linear(linear(x, self.down), self.up)

    def fuse(self, scale: float) -> None:
        self.unfuse()
        self._original = self.frozen.weight.data
        self.frozen.weight.data = self._original + scale * (self.up.data @ self.down.data)

    def unfuse(self) -> None:
        if self._original is not None:
            self.frozen.weight.data = self._original
            self._original = None


@dataclass(frozen=True)
class Adapters:
    """The adapters of a network, by the names of the layers that they belong to."""

    layers: dict[str, LowRankLinear]

    @property
    def learnt(self) -> nn.ParameterDict:
        """All A and B by the layer's name, whose dots are no part of a parameter's name."""
        found = nn.ParameterDict()
        for name, layer in self.layers.items():
            plain = name.replace(".", "/")
            found[f"{plain}/down"], found[f"{plain}/up"] = layer.down, layer.up
        return found

    def fuse(self, scale: float = 1.0) -> None:
        """Put scale * B A into the weights; the weights before are kept aside."""
        for layer in self.layers.values():
            layer.fuse(scale)

    def unfuse(self) -> None:
        """Put the weights back, bit for bit."""
        for layer in self.layers.values():
            layer.unfuse()


def attach(network: nn.Module, names: Sequence[str], rank: int, draw: torch.Generator) -> Adapters:
    """Freeze the network and put an adapter in the place of each named linear layer."""
    network.requires_grad_(False)
    layers = {}
    for name in names:
        frozen = network.get_submodule(name)
        if not isinstance(frozen, nn.Linear):
            raise UsageError(f"Expected a linear layer to adapt, got {type(frozen).__name__}.", where=name)
        layers[name] = LowRankLinear(frozen, rank, draw)
        network.set_submodule(name, layers[name])
    return Adapters(layers)
