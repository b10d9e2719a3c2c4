"""Shifted and mirrored versions: where windows lie, and that one image and many are cut alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfumato.training import augmentation
from sfumato.training.augmentation import Window, draw_windows, random_versions, versions

SHAPES = ((1, 8, 8), (3, 9, 13), (3, 32, 32), (1, 28, 20), (3, 64, 48), (3, 64, 64))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.rand(count, *shape, generator=seeded(5))


@pytest.mark.parametrize(("side", "margin"), [(1, 0), (2, 1), (8, 1), (15, 1), (16, 2), (32, 4), (64, 8)])
def test_windows_reach_every_shift_up_to_an_eighth_of_the_side_and_none_beyond(side: int, margin: int) -> None:
    windows = draw_windows(2_000, side, mirror=True, draw=seeded())
    assert len(windows) == 2_000
    for shifts in ({w.top for w in windows}, {w.left for w in windows}):
        assert shifts == set(range(2 * margin + 1))
    assert {w.mirrored for w in windows} == {True, False}


def test_only_where_it_is_asked_for_is_anything_mirrored() -> None:
    mirrored, upright = (draw_windows(50, 32, mirror=mirror, draw=seeded()) for mirror in (True, False))
    assert not any(window.mirrored for window in upright)
    assert [w[:2] for w in mirrored] == [w[:2] for w in upright], "the places do not depend on it"


def test_they_are_the_same_for_the_same_seed_alone() -> None:
    first, again, other = (draw_windows(9, 32, mirror=True, draw=seeded(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    pictures = images(9, (3, 32, 32))
    state = torch.get_rng_state()
    one, same = (random_versions(pictures, mirror=True, draw=seeded()) for _ in range(2))
    assert torch.equal(one, same)
    assert torch.equal(state, torch.get_rng_state()), "nothing is drawn from the global generator"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_versions_are_windows_of_the_image_extended_by_its_mirror_image(shape: tuple[int, int, int]) -> None:
    (image,) = images(1, shape)
    _, height, width = shape
    windows = draw_windows(12, min(height, width), mirror=True, draw=seeded())
    margin = max(1, min(height, width) // 8)
    extended = np.pad(image.numpy(), ((0, 0), (margin, margin), (margin, margin)), mode="reflect")
    made = versions(image, windows)
    assert made.shape == (12, *shape)
    for version, (top, left, mirrored) in zip(made.numpy(), windows, strict=True):
        expected = extended[:, top : top + height, left : left + width]
        assert np.array_equal(version, expected[:, :, ::-1] if mirrored else expected)


def test_the_window_in_the_middle_is_the_image_itself() -> None:
    (image,) = images(1, (3, 32, 20))
    upright, mirrored = versions(image, [Window(2, 2, False), Window(2, 2, True)])
    assert torch.equal(upright, image)
    assert torch.equal(mirrored, image.flip(2))


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_many_images_are_cut_as_one_image_is(shape: tuple[int, int, int], mirror: bool) -> None:
    pictures = images(7, shape)
    made = random_versions(pictures, mirror=mirror, draw=seeded())
    windows = draw_windows(7, min(shape[1:]), mirror=mirror, draw=seeded())
    expected = torch.cat([versions(image, [window]) for image, window in zip(pictures, windows, strict=True)])
    assert made.is_contiguous()
    assert torch.equal(made, expected)


def test_versions_can_be_mapped_over_records() -> None:
    pictures = images(4, (3, 16, 12))
    windows = draw_windows(3, 12, mirror=True, draw=seeded())
    mapped = torch.func.vmap(lambda image: augmentation.versions(image, windows))(pictures)
    assert torch.equal(mapped, torch.stack([versions(image, windows) for image in pictures]))
