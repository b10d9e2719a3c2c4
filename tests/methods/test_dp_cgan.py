"""DP-CGAN: what is planned, what is learnt from random weights and from painted images, and drafts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sfumato.methods.dp_cgan import DPCGAN
from sfumato.values import Images, Spec

from toys import expect_randomness_of_its_own, fitted, fitted_sampler, halves

SMALL = DPCGAN(components=2, means_share=0.2, rounds=60, sampling=0.3, width=4, every=2, fakes=30, batch=30)
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


def test_the_kept_draft_is_what_the_discriminator_finds_likeliest() -> None:
    sampler = fitted_sampler(SMALL, halves(), 10.0)
    labels = torch.arange(300) % 3
    chosen = sampler(labels).unit()
    single = fitted_sampler(replace(SMALL, drafts=1), halves(), 10.0)(labels).unit()
    assert sampler.likeness(chosen, labels).mean() > sampler.likeness(single, labels).mean()


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(replace(SMALL, rounds=4), halves(90))
