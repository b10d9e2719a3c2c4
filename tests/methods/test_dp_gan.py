"""DP-GAN: what is planned, what is learnt from random weights and from painted images, drafts, sizes, defaults."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_gan import DPGAN
from sfumato.privacy import Budget
from sfumato.values import Images, Spec

from toys import ToySource, expect_randomness_of_its_own, fitted, fitted_sampler, halves

SMALL = DPGAN(components=2, means_share=0.2, rounds=60, sampling=0.3, width=4, every=2, fakes=30, batch=30)
NOTHING = replace(SMALL, start="nothing", diversity=0.1, generator_rate=5e-3)


def expect_bright_halves(images: Images) -> None:
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 30
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 30


def test_the_plan_is_the_mixtures_and_the_discriminator_out_of_one_budget() -> None:
    spec = Spec(1_000, 1, 8, 8, ("a", "b"))
    *mixtures, gradients = SMALL.plan(spec)
    assert len(mixtures) == 7
    assert sum(asked.share for asked in mixtures) == pytest.approx(0.4)
    assert (gradients.rounds, gradients.sampling, gradients.share) == (60, 0.3, pytest.approx(0.6))
    (alone,) = NOTHING.plan(spec)
    assert alone.share == 1


def test_random_weights_learn_the_classes_without_a_budget() -> None:
    expect_bright_halves(fitted(replace(NOTHING, rounds=200), halves(), math.inf))


def test_painted_images_stay_of_their_classes() -> None:
    expect_bright_halves(fitted(SMALL, halves(), 20.0))


def test_the_generator_is_trained_away_from_the_painted_images() -> None:
    trained, untrained = (fitted(replace(SMALL, rounds=r, every=10, drafts=1), halves(), math.inf) for r in (60, 5))
    assert not torch.equal(trained.pixels, untrained.pixels)


def test_the_kept_draft_is_what_the_discriminator_finds_likeliest() -> None:
    sampler = fitted_sampler(SMALL, halves(), 10.0)
    labels = torch.arange(300) % 3
    chosen = sampler(labels).unit()
    single = fitted_sampler(replace(SMALL, drafts=1), halves(), 10.0)(labels).unit()
    assert sampler.likeness(chosen, labels).mean() > sampler.likeness(single, labels).mean()


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(replace(SMALL, rounds=4), halves(90))


@pytest.mark.parametrize("shape", [(1, 27, 29), (3, 32, 32), (3, 64, 64)])
def test_it_takes_odd_and_large_images(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, *shape))
    made = fitted(replace(NOTHING, rounds=2), ToySource(pixels, np.arange(30) % 3), 1.0, count=6)
    assert made.pixels.shape == (6, *shape)


def test_defaults_follow_public_facts() -> None:
    few, many = (Spec(count, 1, 28, 28, ("a",) * 10) for count in (1_000, 60_000))
    budget = Budget(10.0, 1e-5)
    assert DPGAN.for_task(few, budget).components < DPGAN.for_task(many, budget).components
    assert DPGAN.for_task(few, budget).sampling > DPGAN.for_task(many, budget).sampling


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(UsageError, match="start"):
        DPGAN(start="pixels")
