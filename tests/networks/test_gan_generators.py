"""The generators of GS-WGAN: any size, bounded weights, only so many different images, and an average that is one."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from sfumato.networks.gan_generators import GENERATORS, PixelNorm, SpectralNorm, gan_generator
from sfumato.networks.generator import ConditionalGenerator
from sfumato.training.student import update_average


def made(
    name: str, shape: tuple[int, int, int] = (1, 8, 8), *, binary: bool = False, seed: int = 0
) -> ConditionalGenerator:
    draw = torch.Generator().manual_seed(seed)
    return gan_generator(name, shape, 3, latent=4, hidden=16, codes=8, binary=binary, draw=draw)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 5, 9), (1, 3, 3)])
def test_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    labels = torch.arange(6) % 3
    generator = made(name, shape)
    images = generator(generator.inputs(labels, torch.Generator().manual_seed(1)), labels)
    assert images.shape == (6, *shape)
    assert 0 <= images.min() <= images.max() <= 1
    images.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in generator.parameters())


@pytest.mark.parametrize("name", GENERATORS)
def test_weights_come_from_the_given_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    one, same, other = made(name), made(name), made(name, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


@pytest.mark.parametrize("name", GENERATORS)
def test_binary_latents_give_so_many_images_and_no_more(name: str) -> None:
    generator = made(name, binary=True).eval()
    labels = torch.zeros(400, dtype=torch.int64)
    inputs = generator.inputs(labels, torch.Generator().manual_seed(1))
    assert generator.distinct == len(inputs.unique(dim=0)) == 16
    assert made(name).distinct == math.inf


def test_a_normed_weight_has_largest_singular_value_one() -> None:
    torch.manual_seed(0)
    norm, weight = SpectralNorm(12), torch.randn(12, 5, 3, 3)
    for _ in range(200):
        normed = norm(weight)
    assert torch.linalg.matrix_norm(normed.flatten(1), 2) == pytest.approx(1.0, abs=1e-3)
    norm.eval().vector.mul_(7)  # an average of vectors is no unit vector
    torch.testing.assert_close(norm(weight), normed, atol=1e-3, rtol=1e-3)


def test_pixel_norm() -> None:
    maps = PixelNorm()(5 * torch.randn(2, 8, 3, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(maps.square().mean(1), torch.ones(2, 3, 3))


@pytest.mark.parametrize("name", GENERATORS)
def test_an_average_of_one_generator_is_that_generator(name: str) -> None:
    generator = made(name)
    average = copy.deepcopy(generator)
    update_average(average, generator, 0.5)
    labels = torch.arange(6) % 3
    inputs = generator.inputs(labels, torch.Generator().manual_seed(1))
    torch.testing.assert_close(average.eval()(inputs, labels), generator.eval()(inputs, labels))
