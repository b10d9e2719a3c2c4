"""Procedural images: in colour and grey, of any size, varied, and the same for the same seed."""

from __future__ import annotations

import pytest
import torch

from sfumato.synthesis.procedural_images import KINDS, procedural_images


@pytest.mark.parametrize("shape", [(3, 28, 28), (1, 28, 28), (3, 20, 33)])
def test_shape_and_range(shape: tuple[int, int, int]) -> None:
    made = procedural_images(70, shape, torch.Generator().manual_seed(0))
    assert made.shape == (70, *shape)
    assert made.min() >= 0
    assert made.max() <= 1


def test_none_are_none() -> None:
    assert procedural_images(0, (3, 16, 16), torch.Generator()).shape == (0, 3, 16, 16)


def test_the_same_seed_gives_the_same_images() -> None:
    first, second, other = (procedural_images(10, (3, 16, 16), torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("make", [make for make, _ in KINDS], ids=lambda make: make.__name__)
def test_images_of_a_kind_differ_and_have_contrast(make: object) -> None:
    made = make(32, 32, torch.Generator().manual_seed(3))
    assert len(torch.unique(made.flatten(1), dim=0)) == 32
    spread = made.flatten(1).std(1)
    assert spread.median() > 0.05
    colour = (made.amax(1) - made.amin(1)).mean((1, 2))
    assert colour.median() > 0.02
