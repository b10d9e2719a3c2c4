"""The parts of the U-Net: they begin as identities and each image has its own answer."""

from __future__ import annotations

import torch

from sfumato.networks.unet_blocks import Enlarge, GridAttention, ResidualBlock, embedded_time


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_blocks_pass_their_input_on_before_training() -> None:
    x, time = some(2, 16, 4, 4), some(2, 8)
    block, attention = ResidualBlock(16, 16, 8), GridAttention(16)
    torch.testing.assert_close(block(x, time), x + block.second.bias[:, None, None])
    torch.testing.assert_close(attention(x), x + attention.output.bias[:, None, None])


def test_the_time_scales_and_shifts() -> None:
    block = ResidualBlock(8, 8, 8)
    torch.nn.init.normal_(block.second.weight, generator=torch.Generator().manual_seed(0))
    x = some(1, 8, 4, 4)
    assert not torch.allclose(block(x, some(1, 8)), block(x, -some(1, 8)))


def test_attention_is_the_mean_of_values_where_queries_are_zero() -> None:
    attention = GridAttention(8, heads=2)
    eye, zero = torch.eye(8), torch.zeros(8)
    for layer in (attention.value, attention.output):
        layer.weight.data, layer.bias.data = eye, zero
    attention.query.weight.data, attention.query.bias.data = torch.zeros(8, 8), zero
    x = some(3, 8, 2, 4)
    means = attention.norm(x).mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(attention(x), x + means)


def test_times_have_different_embeddings() -> None:
    times = embedded_time(torch.tensor([0.0, 0.001, 0.5, 1.0]), 32)
    assert times.shape == (4, 32)
    assert torch.cdist(times, times)[~torch.eye(4, dtype=torch.bool)].min() > 0.1


def test_enlarging_gives_the_size_that_is_asked_for() -> None:
    assert Enlarge(8, 16)(some(1, 8, 5, 3), torch.Size([9, 6])).shape == (1, 16, 9, 6)
