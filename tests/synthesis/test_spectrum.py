"""Spectra: rows of one image, and images that are given the spectrum of others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sfumato.synthesis.scenes import scenes
from sfumato.synthesis.spectrum import Spectrum


@pytest.fixture(scope="module")
def examples() -> Tensor:
    return scenes(128, (3, 16, 24), torch.Generator().manual_seed(0))


def others(count: int = 128) -> Tensor:
    """Images that are darker, redder and finer than the examples."""
    made = 0.5 + 0.1 * torch.randn(count, 3, 16, 24, generator=torch.Generator().manual_seed(1))
    return (made - torch.tensor([0.0, 0.2, 0.3])[:, None, None]).clamp(0, 1)


def mean_row(spectrum: Spectrum, images: Tensor) -> Tensor:
    return torch.func.vmap(spectrum.row)(images).mean(0)


def test_the_examples_have_a_power_of_one_in_every_band(examples: Tensor) -> None:
    row = mean_row(Spectrum(examples), examples)
    powers = row[:30]
    assert torch.allclose(powers, torch.ones(30), atol=1e-4)
    assert torch.allclose(row[30:33], torch.zeros(3), atol=1e-4)


def test_every_frequency_but_the_mean_counts_once(examples: Tensor) -> None:
    weights = Spectrum(examples).weights.sum(0)
    assert weights[0, 0] == 0
    weights[0, 0] = 1
    assert torch.allclose(weights, torch.ones_like(weights), atol=1e-5)


def test_matched_images_are_nearer_to_the_others(examples: Tensor) -> None:
    spectrum = Spectrum(examples)
    wanted = mean_row(spectrum, others())
    made = mean_row(spectrum, spectrum.matching(wanted, deviation=0.0)(examples))
    before = mean_row(spectrum, examples)
    assert spectrum.matching(wanted, deviation=0.0)(examples).min() >= 0
    within = wanted[:30] < 9  # beyond, the gain is bounded
    for part in (within.nonzero()[:, 0], torch.arange(30, 33)):
        assert (made - wanted)[part].norm() < 0.5 * (before - wanted)[part].norm()


def test_where_there_is_only_noise_nothing_is_changed(examples: Tensor) -> None:
    spectrum = Spectrum(examples)
    noisy = mean_row(spectrum, examples) + 5 * torch.randn(36, generator=torch.Generator().manual_seed(2))
    made = spectrum.matching(noisy, deviation=1e3)(examples)
    assert torch.allclose(made, examples, atol=1e-4)


def test_grey_images_have_one_axis() -> None:
    grey = scenes(16, (1, 16, 16), torch.Generator().manual_seed(0))
    spectrum = Spectrum(grey)
    assert spectrum.row(grey[0]).shape == (12,)
    assert spectrum.bound == pytest.approx(3 * math.sqrt(10))
    wanted = mean_row(spectrum, grey)
    assert torch.allclose(spectrum.matching(wanted, deviation=0.0)(grey), grey, atol=1e-3)
