"""DPDM: one question, what is learnt without a budget, sizes, randomness of its own, the published settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.methods.dpdm import DPDM
from sfumato.privacy import Budget
from sfumato.values import Spec

from toys import ToySource, expect_randomness_of_its_own, fitted, halves, toy

SMALL = DPDM(width=8, rounds=4, sampling=0.3, multiplicity=2, sampler_steps=5)


def test_the_plan_is_one_question_of_many_rounds() -> None:
    (gradients,) = SMALL.plan(Spec(1_000, 1, 8, 8, ("a", "b")))
    assert (gradients.rounds, gradients.sampling, gradients.share) == (4, 0.3, 1.0)


def test_it_learns_the_classes_without_a_budget() -> None:
    images = fitted(replace(SMALL, rounds=40, rate=1e-2), halves(), math.inf, count=150)
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 30
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 30


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(SMALL, halves(60))


def test_it_takes_images_of_one_place_and_one_copy_of_each_record() -> None:
    """A batch of one image at one place has one value for each channel."""
    assert fitted(replace(SMALL, multiplicity=1), toy(30), 1.0, count=1).pixels.shape == (1, 1, 4, 4)


@pytest.mark.parametrize("shape", [(1, 27, 29), (3, 32, 32), (3, 64, 64)])
def test_it_takes_odd_and_large_images(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, *shape))
    made = fitted(replace(SMALL, rounds=2), ToySource(pixels, np.arange(30) % 3), 1.0, count=6)
    assert made.pixels.shape == (6, *shape)


def test_what_is_free_changes_the_images_and_not_the_question() -> None:
    spec = Spec(1_000, 1, 8, 8, ("a", "b"))
    for free in ({"sampler": "heun"}, {"sampler_steps": 7}, {"guidance": 1.0}):
        changed = replace(SMALL, **free)
        assert changed.plan(spec) == SMALL.plan(spec)
        assert not torch.equal(
            fitted(SMALL, halves(60), 1.0, count=6).pixels, fitted(changed, halves(60), 1.0, count=6).pixels
        )


def test_the_published_settings_can_be_planned() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    published = DPDM.paper(spec)
    assert (published.sampler, published.sampler_steps, published.churn) == ("heun", 1_000, 10.0)
    assert published.seconds(spec) > 10 * DPDM.for_task(spec, Budget(1.0, 1e-5)).seconds(spec)
    assert DPDM.paper(Spec(45_000, 3, 32, 32, ("a",) * 10)).sampler == "ddim"
