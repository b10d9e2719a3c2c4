"""Images on a small grid: what comes back, and that noise on latents is noise on pixels."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.latent_grid import LatentGrid, block_side


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 27, 30), (1, 8, 8), (2, 5, 3)])
def test_images_come_back_whatever_their_size(shape: tuple[int, int, int]) -> None:
    grid = LatentGrid(shape)
    images = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    latents = grid.encode(images)
    assert latents.shape == (2, *grid.shape)
    torch.testing.assert_close(grid.decode(latents), images, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("longest", "side"), [(8, 4), (28, 4), (40, 4), (41, 8), (64, 8), (128, 16)])
def test_larger_images_have_larger_blocks(longest: int, side: int) -> None:
    assert block_side(longest) == side


def test_28_pixels_are_a_grid_of_7_and_a_block_of_one_pixel_is_the_image() -> None:
    assert LatentGrid((1, 28, 28)).shape == (16, 7, 7)
    images = torch.rand(1, 1, 28, 28)
    torch.testing.assert_close(LatentGrid((1, 28, 28), side=1).encode(images), 2 * images - 1)


def test_noise_of_pixels_in_minus_one_to_one_is_as_long_on_the_grid() -> None:
    grid = LatentGrid((3, 32, 32))
    first, second = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)
    moved = torch.linalg.vector_norm(grid.encode(first) - grid.encode(second))
    torch.testing.assert_close(moved, 2 * torch.linalg.vector_norm(first - second), rtol=1e-4, atol=0)


def test_the_border_that_is_added_has_no_edge() -> None:
    flat = torch.full((1, 1, 27, 30), 0.3)
    latents = LatentGrid((1, 27, 30)).encode(flat)
    torch.testing.assert_close(latents[:, 1:], torch.zeros_like(latents[:, 1:]), atol=1e-5, rtol=0)


def test_usual_deviations_fall_with_the_wave_and_add_up_to_that_of_pixels() -> None:
    grid = LatentGrid((3, 32, 32))
    found = grid.usual_deviations().reshape(3, 16)
    assert (found.diff(dim=1) <= 0).all()
    assert (found[0] > found[1]).all()
    assert float(found.square().mean().sqrt()) == pytest.approx(0.5)
    assert LatentGrid((1, 8, 8), side=1).usual_deviations().tolist() == [0.5]
