"""DP-MERF: unit features, an unbiased distance, samples that follow the data, and pixels in place of a generator."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from sfumato.methods.dp_merf import DPMERF
from sfumato.networks.generator import PatchGenerator
from sfumato.privacy import Budget
from sfumato.synthesis.embedding import class_sizes, squared_mmd
from sfumato.synthesis.fourier_embedding import features
from sfumato.values import Spec

from toys import fitted, fitted_sampler, halves

SMALL = DPMERF(frequencies=200, length_scales=(0.3,), steps=150, batch=96, latent=4, hidden=64, codes=4)


def test_features_have_unit_norm_for_every_image():
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(50, 3 * 32 * 32, generator=draw)
    images[0], images[1] = 0, 1
    for scale in (0.01, 1.0, 100.0):
        omega = torch.randn(123, 3 * 32 * 32, generator=draw) * scale
        torch.testing.assert_close(features(images, omega).norm(dim=1), torch.ones(50))


def test_features_approximate_the_gaussian_kernel():
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 64, generator=draw)
    omega = torch.randn(40_000, 64, generator=draw) / 3
    kernel = torch.exp(-(a - b).square().sum() / (2 * 9))
    torch.testing.assert_close(features(a, omega) @ features(b, omega), kernel, atol=0.02, rtol=0)


def test_the_distance_is_unbiased():
    draw = torch.Generator().manual_seed(0)
    omega = torch.randn(50, 4, generator=draw)
    population = features(torch.rand(4_000, 4, generator=draw), omega)
    batches = population[torch.randint(4_000, (1, 20_000 * 5), generator=draw)].reshape(20_000, 5, -1)
    estimates = squared_mmd(batches, population.mean(0))
    assert abs(estimates.mean()) < 4 * estimates.std() / math.sqrt(20_000)


def test_class_sizes_are_never_below_their_noise():
    sizes = class_sizes(torch.tensor([50.0, -3.0, 0.0]), share=0.25, noise=4.0)
    assert sizes.tolist() == [pytest.approx(100.0, abs=2.0), 8.0, 8.0]


def test_class_sizes_that_differ_by_noise_alone_are_taken_to_be_alike():
    draw = torch.Generator().manual_seed(0)
    noisy = torch.full((10,), 0.5 * 140) + 20.0 * torch.randn(10, generator=draw)  # 40 records of noise
    alike = class_sizes(noisy, share=0.25, noise=20.0)
    assert (alike - 140).abs().max() < 0.5 * (noisy / 0.5 - 140).abs().max()
    uneven = torch.tensor([10.0, 5_000.0, 900.0])
    assert torch.allclose(class_sizes(0.5 * uneven, share=0.25, noise=2.0), uneven, rtol=0.01, atol=1.0)
    assert class_sizes(torch.tensor(50.0), share=0.25, noise=4.0) == 100


def test_samples_follow_the_data_at_infinite_budget():
    source = halves()
    made = fitted(dataclasses.replace(SMALL, steps=400, length_scales=(0.8,)), source, math.inf)
    for c in range(3):
        ours = made.unit()[made.labels == c].mean(0)
        theirs = torch.from_numpy(source.pixels[source.labels == c]).float().mean(0) / 255
        assert (ours - theirs).abs().mean() < 0.05


def test_two_calls_of_a_sampler_give_different_images():
    sampler = fitted_sampler(dataclasses.replace(SMALL, steps=3), halves(), 1.0)
    labels = torch.zeros(5, dtype=torch.int64)
    assert not torch.equal(sampler(labels).pixels, sampler(labels).pixels)


@pytest.mark.parametrize("side", [8, 13, 28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_generator_makes_every_size(side: int, channels: int):
    draw = torch.Generator().manual_seed(0)
    network = PatchGenerator((channels, side, side), 5, latent=4, hidden=16, codes=4, draw=draw)
    images = network(torch.randn(6, 4, generator=draw), torch.arange(6) % 5)
    assert images.shape == (6, channels, side, side)
    assert 0 <= images.min() <= images.max() <= 1


def test_defaults_follow_public_facts():
    few = DPMERF.for_task(Spec(1_438, 1, 8, 8, ("a",) * 10), Budget(1.0, 1e-4))
    many = DPMERF.for_task(Spec(60_000, 1, 28, 28, ("a",) * 10), Budget(1.0, 1e-5))
    assert few.seconds(Spec(1_438, 1, 8, 8, ("a",) * 10)) < many.seconds(Spec(60_000, 1, 28, 28, ("a",) * 10))


def test_pixels_can_be_trained_without_a_generator():
    method = dataclasses.replace(SMALL, canvas="pixels", learning_rate=0.1)
    images = fitted(method, halves(), 10.0)
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert (left > right)[images.labels == 0].all()
    assert (left < right)[images.labels == 1].all()
    assert len(images.pixels[images.labels == 2].unique(dim=0)) > 8  # many images, not one
