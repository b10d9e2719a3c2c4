"""Procedural images: in range, varied, repeatable, and detail stays on the object."""

from __future__ import annotations

import pytest
import torch

from sfumato.synthesis.dead_leaves import dead_leaves, detailed, leaf_masks, sharpened


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 20)])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_procedural_images_are_in_range_and_repeatable(shape: tuple[int, int, int], count: int) -> None:
    pictures = dead_leaves(count, shape, torch.Generator().manual_seed(0))
    assert pictures.shape == (count, *shape)
    assert not count or (pictures.min() >= 0 and pictures.max() <= 1)
    assert torch.equal(pictures, dead_leaves(count, shape, torch.Generator().manual_seed(0)))


def test_procedural_images_differ_in_tone_detail_and_colour() -> None:
    pictures = dead_leaves(400, (3, 28, 28), torch.Generator().manual_seed(1))
    assert pictures.mean((1, 2, 3)).std() > 0.1
    steps = (pictures[..., 1:] - pictures[..., :-1]).abs().mean((1, 2, 3))
    assert steps.quantile(0.9) > 3 * steps.quantile(0.1)
    assert (pictures.amax(1) - pictures.amin(1)).mean() > 0.05


def test_global_randomness_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    dead_leaves(5, (1, 8, 8), torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_detail_stays_on_the_object_and_leaves_some_images_nearly_alone() -> None:
    images = torch.zeros(500, 1, 28, 28)
    images[..., 8:20, 8:20] = 0.6
    made = detailed(images, torch.Generator().manual_seed(2))
    outside = made * (images == 0)
    assert (outside.amax((1, 2, 3)) < 1e-3).float().mean() > 0.8  # a tenth may keep some
    inside = made[..., 8:20, 8:20]
    assert inside.std((1, 2, 3)).quantile(0.7) > 0.05
    assert ((inside - 0.6).abs().amax((1, 2, 3)) < 0.01).float().mean() > 0.02
    assert made.min() >= 0
    assert made.max() <= 1


def test_a_leaf_covers_some_of_the_picture_and_a_small_one_less() -> None:
    def covered(largest: float) -> float:
        return leaf_masks(500, (1, 28, 28), torch.Generator().manual_seed(3), largest=largest).float().mean().item()

    assert 0.02 < covered(0.5) < 0.6
    assert 0 < covered(0.05) < 0.8 * covered(0.5)  # a patch of cloud has no size


def test_softening_by_hand() -> None:
    dot = torch.zeros(1, 1, 5, 5)
    dot[..., 2, 2] = 0.9
    torch.testing.assert_close(sharpened(dot, -1.0)[0, 0, 1:4, 1:4], torch.full((3, 3), 0.1))
    assert torch.equal(sharpened(dot, 0.0), dot)
    assert sharpened(0.5 * dot, 1.0)[0, 0, 2, 2] > 0.8


def test_detail_sharpens_some_soft_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.synthesis.dead_leaves.DETAILS", 0)  # leaves have edges of their own
    soft = torch.linspace(0.1, 0.9, 9).expand(1_000, 1, 9, 9)

    def steep(sharpness: float) -> float:
        monkeypatch.setattr("sfumato.synthesis.dead_leaves.SHARPNESS", sharpness)
        made = detailed(soft, torch.Generator().manual_seed(4))
        return float((made.diff(dim=3).amax((1, 2, 3)) > 0.13).float().mean())

    assert steep(1.5) > steep(0.0) + 0.1
