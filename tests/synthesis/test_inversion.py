"""Inversion: images are moved until the features of each class have the means that are wanted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato.synthesis import inversion
from sfumato.synthesis.inversion import inverted

LABELS = torch.tensor([1, 0, 1, 0, 1, 0])


def quarters(images: Tensor) -> Tensor:
    """Mean brightness of the quarters, (b, 4, 1, 1); shifts by a tenth of the side change it little."""
    return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)[:, :, None, None]


def start(seed: int = 0) -> Tensor:
    return 0.4 + 0.2 * torch.rand(6, 1, 16, 16, generator=torch.Generator().manual_seed(seed))


def made(means: Tensor, seed: int = 0) -> Tensor:
    return inverted(start(seed), LABELS, means, quarters, torch.Generator().manual_seed(seed))


def test_the_classes_get_the_means_that_are_wanted() -> None:
    means = torch.tensor([[0.8, 0.2, 0.2, 0.2], [0.3, 0.3, 0.7, 0.7]])
    images = made(means)
    assert images.shape == (6, 1, 16, 16)
    assert 0 <= images.min() <= images.max() <= 1
    for label in (0, 1):
        got, before = (quarters(x)[label == LABELS].flatten(1).mean(0) for x in (images, start()))
        assert (got - means[label]).norm() < 0.4 * (before - means[label]).norm()


def test_images_of_a_class_keep_differing() -> None:
    images = made(torch.full((2, 4), 0.5))
    assert (images[LABELS == 0][0] - images[LABELS == 0][1]).abs().mean() > 1e-3


def test_noise_in_the_pixels_is_reduced() -> None:
    def variation(images: Tensor) -> float:
        return float((images[..., 1:] - images[..., :-1]).abs().mean())

    assert variation(made(quarters(start()).flatten(1)[:2])) < 0.7 * variation(start())


def test_the_same_draw_gives_the_same_images_in_chunks_of_any_class() -> None:
    means = torch.tensor([[0.8, 0.2, 0.2, 0.2], [0.3, 0.3, 0.7, 0.7]])
    assert torch.equal(made(means), made(means))
    assert not torch.equal(made(means), made(means, seed=1))


def test_more_images_than_a_chunk_are_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "CHUNK", 2)
    means = torch.tensor([[0.8, 0.2, 0.2, 0.2], [0.3, 0.3, 0.7, 0.7]])
    images = made(means)
    assert (images - start()).abs().flatten(1).mean(1).min() > 0.01
