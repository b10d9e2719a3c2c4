"""Low-rank adapters: nothing at first, W + B A when fused, and W bit for bit afterwards (checklist 5)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.errors import UsageError
from sfumato.networks.low_rank import Adapters, attach


def adapted(rank: int = 4) -> tuple[nn.Sequential, Adapters]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 3)))
    return network, attach(network, ("0", "2.0"), rank, torch.Generator().manual_seed(1))


def learn(adapters: Adapters) -> None:
    draw = torch.Generator().manual_seed(2)
    for weight in adapters.learnt.values():
        weight.data = torch.randn(weight.shape, generator=draw)


def test_it_begins_with_gaussian_a_and_zero_b_and_changes_nothing() -> None:
    layer = nn.Linear(1000, 20)
    network = nn.Sequential(layer)
    x = torch.randn(5, 1000, generator=torch.Generator().manual_seed(0))
    before = network(x)
    adapters = attach(network, ("0",), 4, torch.Generator().manual_seed(1))
    added = adapters.layers["0"]
    assert added.down.shape == (4, 1000)
    assert added.up.shape == (20, 4)
    assert not added.up.any()
    assert abs(float(added.down.detach().std()) - 1 / 4) < 0.01
    assert torch.equal(network(x), before)


def test_only_a_and_b_learn() -> None:
    network, adapters = adapted()
    learn(adapters)
    network(torch.ones(2, 6)).sum().backward()
    with_gradient = {name for name, p in network.named_parameters() if p.grad is not None}
    assert with_gradient == {"0.down", "0.up", "2.0.down", "2.0.up"}
    assert set(adapters.learnt) == {"0/down", "0/up", "2/0/down", "2/0/up"}


def test_fusing_gives_exactly_w_plus_b_a() -> None:
    _, adapters = adapted()
    learn(adapters)
    wanted = {n: each.frozen.weight + each.up @ each.down for n, each in adapters.layers.items()}
    adapters.fuse(scale=1)
    for name, each in adapters.layers.items():
        assert torch.equal(each.frozen.weight, wanted[name])


def test_a_fused_network_answers_as_before() -> None:
    network, adapters = adapted()
    learn(adapters)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
    before = network(x)
    adapters.fuse(1)
    torch.testing.assert_close(network(x), before)
    adapters.fuse(0)  # not on top of what is fused
    assert not torch.allclose(network(x), before)


def test_unfusing_restores_every_bit_however_often_it_was_fused() -> None:
    network, adapters = adapted()
    learn(adapters)
    weights = [each.frozen.weight.clone() for each in adapters.layers.values()]
    answer = network(torch.ones(1, 6))
    for scale in (1.0, 0.3, 1e6):
        adapters.fuse(scale)
    adapters.unfuse()
    adapters.unfuse()
    for each, weight in zip(adapters.layers.values(), weights, strict=True):
        assert torch.equal(each.frozen.weight, weight)
    assert torch.equal(network(torch.ones(1, 6)), answer)


def test_only_linear_layers_can_be_adapted() -> None:
    with pytest.raises(UsageError, match="linear layer to adapt, got ReLU"):
        attach(nn.Sequential(nn.ReLU()), ("0",), 4, torch.Generator())
