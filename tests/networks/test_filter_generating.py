"""The mask of DISCO by hand: rank, sigmoid, share of masked channels, gradient (checklist 6)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sfumato.networks.filter_generating import ChannelFilter


def identity(channels: int, **settings: float) -> ChannelFilter:
    """A filter whose scores are the means of the channels."""
    made = ChannelFilter(channels, **settings, draw=torch.Generator().manual_seed(0))
    made.scores.weight.data = torch.eye(channels)
    return made


def constant(*values: float) -> Tensor:
    return torch.tensor(values)[None, :, None, None].expand(1, len(values), 2, 3)


def test_a_case_by_hand() -> None:
    """Five channels, 60 %: tau is the score of rank 3 from the lowest, counted from 0."""
    features = constant(0.5, 0.1, 0.4, 0.2, 0.3)
    wanted = [1 / (1 + math.exp(-30 * (score - 0.4))) for score in (0.5, 0.1, 0.4, 0.2, 0.3)]
    torch.testing.assert_close(identity(5).mask(features), torch.tensor([wanted]))
    torch.testing.assert_close(identity(5)(features), torch.tensor(wanted)[None, :, None, None] * features)


@pytest.mark.parametrize("ratio", [0.0, 0.29, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("channels", [10, 64, 100])
def test_so_many_channels_get_less_than_half(channels: int, ratio: float) -> None:
    features = torch.randn(20, channels, 3, 3, generator=torch.Generator().manual_seed(1))
    mask = ChannelFilter(channels, ratio=ratio, draw=torch.Generator().manual_seed(0)).mask(features)
    expected = min(channels - 1, round(ratio * 100) * channels // 100)
    assert ((mask < 0.5).sum(dim=1) == expected).all()


def test_its_weights_come_from_the_draw_alone() -> None:
    before = torch.get_rng_state()
    made = [ChannelFilter(8, draw=torch.Generator().manual_seed(seed)).scores.weight for seed in (0, 0, 1)]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_each_image_has_its_own_mask_whatever_is_beside_it() -> None:
    features = torch.randn(6, 16, 2, 2, generator=torch.Generator().manual_seed(1))
    made = ChannelFilter(16, draw=torch.Generator().manual_seed(0))
    assert len({tuple(row) for row in (made.mask(features) < 0.5).tolist()}) > 1
    torch.testing.assert_close(made(features)[2:3], made(features[2:3]))


def test_the_gradient_flows_to_scores_and_features() -> None:
    features = (0.01 * torch.randn(4, 10, 2, 2, generator=torch.Generator().manual_seed(1))).requires_grad_()
    made = ChannelFilter(10, draw=torch.Generator().manual_seed(0))
    made(features).square().sum().backward()
    assert made.scores.weight.grad is not None
    assert (made.scores.weight.grad.abs().sum(dim=1) > 0).all()
    assert features.grad is not None
    assert (features.grad != 0).all()
