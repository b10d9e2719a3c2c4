"""Versions of images: by a seed alone, none at strength zero, and plain grounds stay plain."""

from __future__ import annotations

import torch

from sfumato.synthesis.varied_images import varied

from toys import coloured_squares

IMAGES = coloured_squares(6)


def test_the_images_come_in_turn_with_their_labels() -> None:
    made = varied(IMAGES, 14, strength=1.0, seed=0)
    assert made.pixels.shape == (14, 3, 16, 16)
    assert made.labels.tolist() == [0, 1, 2] * 4 + [0, 1]
    assert not torch.equal(made.pixels[:6], made.pixels[6:12])


def test_at_strength_zero_they_are_the_images() -> None:
    made = varied(IMAGES, 12, strength=0.0, seed=0)
    assert (made.pixels[6:].int() - IMAGES.pixels.int()).abs().max() <= 1


def test_versions_stay_nearer_to_their_image_than_to_others_of_its_kind() -> None:
    made = varied(IMAGES, 300, strength=1.0, seed=0).unit().flatten(1)
    apart = torch.cdist(made, IMAGES.unit().flatten(1))
    assert (apart.argmin(1) % 3 == torch.arange(300) % 3).float().mean() > 0.95


def test_black_stays_black_and_white_white() -> None:
    plain = IMAGES.pixels * 0
    for value in (0, 255):
        made = varied(type(IMAGES)(plain + value, IMAGES.labels, IMAGES.classes), 20, strength=1.0, seed=0)
        assert (made.pixels.int() - value).abs().max() <= 1


def test_the_seed_alone_decides() -> None:
    made = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        made.append(varied(IMAGES, 20, strength=1.0, seed=0).pixels)
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*made)
    assert not torch.equal(made[0], varied(IMAGES, 20, strength=1.0, seed=1).pixels)
