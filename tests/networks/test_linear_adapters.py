"""Adapters made of linear layers: nothing changes before training, and nothing else is trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sfumato.errors import UsageError
from sfumato.networks.linear_adapters import adapt
from sfumato.networks.unet import UNet


def adapted(rank: int = 3, seed: int = 0) -> tuple[UNet, UNet]:
    """A U-Net, and the same with adapters at its attention."""
    networks = []
    for _ in range(2):
        torch.manual_seed(1)
        networks.append(UNet(4, width=8, classes=3))
    adapt(networks[1], networks[1].attention_projections, rank, torch.Generator().manual_seed(seed))
    return networks[0], networks[1]


def test_nothing_changes_before_training() -> None:
    plain, with_adapters = adapted()
    noisy, times, labels = torch.randn(2, 4, 4, 4), torch.rand(2), torch.tensor([0, 3])
    assert torch.equal(plain(noisy, times, labels=labels)[0], with_adapters(noisy, times, labels=labels)[0])


def test_only_adapters_are_trained_and_their_weights_come_from_the_seed() -> None:
    _, network = adapted()
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    assert trained
    assert all(name.endswith(("down.weight", "up.weight")) for name in trained)
    assert all(3 in value.shape for value in trained.values())
    again, other = dict(adapted()[1].named_parameters()), dict(adapted(seed=1)[1].named_parameters())
    downs = [name for name in trained if name.endswith("down.weight")]
    assert all(torch.equal(trained[name], again[name]) for name in downs)
    assert not any(torch.equal(trained[name], other[name]) for name in downs)


def test_other_layers_are_refused() -> None:
    with pytest.raises(UsageError, match="Conv2d"):
        adapt(nn.Sequential(nn.Conv2d(1, 1, 3)), ["0"], 2, torch.Generator())
