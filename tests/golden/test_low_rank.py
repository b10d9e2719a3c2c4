"""Low-rank adapters do what those of peft do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sfumato.networks.low_rank import Adapters, attach

NAMES = ("to_q", "to_k", "to_v", "to_out.0")
WIDTH = 12


class Attention(nn.Module):
    """The projections of an attention as diffusers names them, and a layer that is not adapted."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k = nn.Linear(WIDTH, 16, bias=False), nn.Linear(WIDTH, 16, bias=False)
        self.to_v, self.to_out = nn.Linear(WIDTH, 16, bias=False), nn.ModuleList([nn.Linear(16, WIDTH)])
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:  # (n, t, d)
        mixed = nn.functional.scaled_dot_product_attention(self.to_q(tokens), self.to_k(tokens), self.to_v(tokens))
        made: Tensor = self.last(self.to_out[0](mixed))
        return made


def network() -> Attention:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Attention()


@pytest.fixture
def both() -> tuple[Attention, Adapters, Any]:
    """Our adapters and those of peft, on the same network and with the same numbers in A and B."""
    peft = pytest.importorskip("peft", reason="needs the package `peft` of the extra `diffusion`")
    ours = network()
    draw = torch.Generator().manual_seed(1)
    adapters = attach(ours, NAMES, 4, draw)
    settings = peft.LoraConfig(r=4, lora_alpha=4, target_modules=list(NAMES), init_lora_weights="gaussian")
    theirs = peft.inject_adapter_in_model(settings, network())
    with torch.no_grad():
        for name, layer in adapters.layers.items():
            layer.up.copy_(torch.randn(layer.up.shape, generator=draw))
            theirs.get_submodule(name).lora_A["default"].weight.copy_(layer.down)
            theirs.get_submodule(name).lora_B["default"].weight.copy_(layer.up)
    return ours, adapters, theirs


def tokens() -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(2))


def test_the_same_numbers_give_the_same_outputs_and_gradients(both: tuple[Attention, Adapters, Any]) -> None:
    ours, adapters, theirs = both
    made, expected = ours(tokens()), theirs(tokens())
    assert not torch.allclose(made, network()(tokens()), atol=1e-3)
    torch.testing.assert_close(made, expected)
    made.square().sum().backward()
    expected.square().sum().backward()
    for name, layer in adapters.layers.items():
        their = theirs.get_submodule(name)
        torch.testing.assert_close(layer.down.grad, their.lora_A["default"].weight.grad)
        torch.testing.assert_close(layer.up.grad, their.lora_B["default"].weight.grad)


def test_fused_weights_are_the_same(both: tuple[Attention, Adapters, Any]) -> None:
    ours, adapters, theirs = both
    adapters.fuse()
    for name, layer in adapters.layers.items():
        their = theirs.get_submodule(name)
        their.merge()
        torch.testing.assert_close(layer.frozen.weight, their.base_layer.weight)
    torch.testing.assert_close(ours(tokens()), theirs(tokens()))


def test_adapters_begin_as_wide_as_those_of_peft_and_change_nothing() -> None:
    """Seeded; by chance the two spreads of 4 x 4096 numbers would differ by 5 % less than once in a million seeds."""
    peft = pytest.importorskip("peft", reason="needs the package `peft` of the extra `diffusion`")
    wide = nn.Sequential(nn.Linear(4096, 2))
    (layer,) = attach(wide, ("0",), 4, torch.Generator().manual_seed(0)).layers.values()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        settings = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["0"], init_lora_weights="gaussian")
        their = peft.inject_adapter_in_model(settings, nn.Sequential(nn.Linear(4096, 2))).get_submodule("0")
    assert layer.down.std().item() == pytest.approx(their.lora_A["default"].weight.std().item(), rel=0.05)
    assert not layer.up.any()
    assert not their.lora_B["default"].weight.any()
