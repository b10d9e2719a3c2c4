"""The block transform: orthonormal, its own way back, slow waves first."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.block_cosines import BlockCosines


@pytest.mark.parametrize(("side", "shape"), [(4, (3, 16, 24)), (8, (1, 16, 16))])
def test_it_is_orthonormal_and_goes_back(side: int, shape: tuple[int, int, int]) -> None:
    images = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    latents = BlockCosines(side).encode(images)
    assert latents.shape == (5, shape[0] * side * side, shape[1] // side, shape[2] // side)
    torch.testing.assert_close(latents.square().sum(), images.square().sum())
    torch.testing.assert_close(BlockCosines(side).decode(latents), images)


def test_pixels_come_back_without_a_change() -> None:
    pixels = torch.randint(0, 256, (4, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    blocks = BlockCosines()
    assert torch.equal(blocks.decode(blocks.encode(pixels.float())).round().to(torch.uint8), pixels)


def test_the_first_coefficient_is_the_mean_of_the_block() -> None:
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    means = torch.nn.functional.avg_pool2d(images, 4)
    torch.testing.assert_close(BlockCosines(4, kept=1).encode(images), 4 * means)
    flat = BlockCosines(4, kept=1).decode(4 * means)
    torch.testing.assert_close(flat, means.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3))


def test_grey_images_have_brightness_alone() -> None:
    grey = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)).expand(2, 3, 8, 8)
    latents = BlockCosines(4).encode(grey)
    assert latents[:, :16].abs().mean() > 0.1
    assert latents[:, 16:].abs().max() < 1e-5


def test_slow_waves_are_kept_and_fast_ones_left_out() -> None:
    gradient = torch.arange(8.0).expand(1, 1, 8, 8) / 8
    stripes = (torch.arange(8) % 2).float().expand(1, 1, 8, 8)
    few = BlockCosines(4, kept=3)
    lost = [(few.decode(few.encode(each)) - each).square().mean() for each in (gradient, stripes)]
    assert lost[0] < 1e-4 < 0.1 < lost[1]
