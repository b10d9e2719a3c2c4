"""Low-rank adapters (Hu et al. 2021, LoRA) of linear layers, made of linear layers: DP-SGD takes them on its fast path.

Those of `low_rank`, which are bare parameters, can be put into the weights and taken out again; DP-SGD would make the
gradient of each record for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from sfumato.errors import UsageError


class AdaptedLinear(nn.Module):
    """A frozen linear layer and a product B A of two thin ones that is added to it; B is zero before training."""

    def __init__(self, frozen: nn.Linear, rank: int, draw: torch.Generator) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = skip_init(nn.Linear, frozen.in_features, rank, bias=False)  # type: ignore[no-untyped-call]  # A
        self.up = skip_init(nn.Linear, rank, frozen.out_features, bias=False)  # type: ignore[no-untyped-call]  # B
        nn.init.normal_(self.down.weight, std=1 / rank, generator=draw)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.frozen(x) + self.up(self.down(x)))


def adapt(network: nn.Module, names: Sequence[str], rank: int, draw: torch.Generator) -> None:
    """Freeze the network but for an adapter at each named linear layer."""
    network.requires_grad_(False)
    for name in names:
        frozen = network.get_submodule(name)
        if not isinstance(frozen, nn.Linear):
            raise UsageError(f"Expected a linear layer to adapt, got {type(frozen).__name__}.", where=name)
        network.set_submodule(name, AdaptedLinear(frozen, rank, draw))
