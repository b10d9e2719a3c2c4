"""Procedural scenes: their form, and that they depend on nothing but the draw."""

from __future__ import annotations

import pytest
import torch

from sfumato.synthesis.scenes import scenes


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 64, 48), (3, 8, 8), (3, 100, 128)])
def test_scenes_are_images_of_the_wanted_shape(shape: tuple[int, int, int]) -> None:
    made = scenes(3, shape, drawn())
    assert made.shape == (3, *shape)
    assert 0 <= made.min() < made.max() <= 1
    assert made.flatten(1).std(1).min() > 0.005  # none is plain


def test_the_same_draw_makes_the_same_scenes_and_another_draw_others() -> None:
    assert torch.equal(scenes(2, (3, 16, 16), drawn()), scenes(2, (3, 16, 16), drawn()))
    assert not torch.equal(scenes(2, (3, 16, 16), drawn()), scenes(2, (3, 16, 16), drawn(1)))


def test_no_scenes_are_made_where_none_are_wanted() -> None:
    assert scenes(0, (3, 16, 16), drawn()).shape == (0, 3, 16, 16)


def test_grey_scenes_have_equal_channels_and_colour_scenes_have_colour() -> None:
    assert scenes(2, (1, 16, 16), drawn()).shape[1] == 1
    colour = scenes(64, (3, 16, 16), drawn())
    assert (colour.amax(1) - colour.amin(1)).mean() > 0.02
