"""DP-Refine: one budget for mixtures and gradients, images that keep their class, and what is free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.methods.dp_refine import DPRefine
from sfumato.values import Images, Spec

from toys import ToySource, expect_randomness_of_its_own, fitted, halves

SMALL = DPRefine(
    width=8,
    rounds=4,
    sampling=0.3,
    multiplicity=2,
    sampler_steps=5,
    steps=30,
    batch=32,
    painted=200,
    components=2,
    means_share=0.2,
)


def expect_bright_halves(images: Images) -> None:
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 30
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 30


def test_the_plan_is_the_mixtures_and_the_gradients_out_of_one_budget() -> None:
    *mixtures, gradients = SMALL.plan(Spec(1_000, 1, 8, 8, ("a", "b")))
    assert len(mixtures) == 7
    assert sum(asked.share for asked in mixtures) == pytest.approx(0.3)
    assert (gradients.rounds, gradients.sampling, gradients.share) == (4, 0.3, pytest.approx(0.7))


def test_images_that_are_made_anew_stay_of_their_classes() -> None:
    expect_bright_halves(fitted(replace(SMALL, steps=100), halves(), 20.0, count=150))


def test_at_level_zero_they_are_what_was_painted() -> None:
    """Then the denoiser is not asked, and how it would be asked makes no difference."""

    def made(level: float, steps: int) -> torch.Tensor:
        return fitted(replace(SMALL, level=level, sampler_steps=steps), halves(60), 20.0, count=6).pixels

    assert torch.equal(made(0.0, 3), made(0.0, 5))
    assert not torch.equal(made(1.0, 3), made(1.0, 5))


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(SMALL, halves(60))


@pytest.mark.parametrize("shape", [(1, 27, 29), (3, 32, 32)])
def test_it_takes_odd_and_colour_images(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, *shape))
    made = fitted(replace(SMALL, rounds=2, steps=5), ToySource(pixels, np.arange(30) % 3), 1.0, count=6)
    assert made.pixels.shape == (6, *shape)
