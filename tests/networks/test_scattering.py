"""The scattering transform against its definition, and what a private head needs of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.signal import convolve2d

from sfumato.networks.scattering import Scattering, ScatteringFeatures


def pictures(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("scales", "channels", "side", "paths"), [(2, 1, 28, 81), (1, 3, 8, 9), (3, 1, 64, 217)])
def test_its_shape(scales: int, channels: int, side: int, paths: int) -> None:
    made = Scattering(scales)(pictures(2, channels, side, side))
    assert made.shape == (2, channels * paths, side // 2**scales, side // 2**scales)
    assert torch.isfinite(made).all()


def test_first_order_is_a_blurred_modulus_of_a_convolution() -> None:
    image = pictures(1, 1, 8, 8)
    transform = Scattering(1)
    padded = np.pad(image[0, 0].double().numpy(), 4, mode="edge")
    real, imaginary = (transform.wavelets[k, 0].double().numpy()[::-1, ::-1] for k in (2, 10))
    modulus = np.hypot(convolve2d(padded, real, "valid"), convolve2d(padded, imaginary, "valid"))
    blurred = convolve2d(np.pad(modulus, 2, mode="edge"), transform.blur[0, 0].double().numpy(), "valid")[::2, ::2]
    assert np.allclose(transform(image)[0, 1 + 2].numpy(), blurred, atol=1e-4)


def test_a_flat_image_has_no_waves() -> None:
    made = Scattering(2)(torch.full((1, 1, 28, 28), 0.7))
    assert torch.allclose(made[:, 0], torch.full_like(made[:, 0], 0.7), atol=1e-5)
    assert made[:, 1:].abs().max() < 1e-3


def test_a_turned_image_has_turned_waves() -> None:
    image = pictures(1, 1, 16, 16)
    upright, turned = Scattering(1)(image)[0, 1:], Scattering(1)(image.rot90(1, (2, 3)))[0, 1:]
    energy = [maps.square().mean((1, 2)) for maps in (upright, turned)]
    assert torch.allclose(energy[0].roll(4), energy[1], rtol=0.1)  # eight orientations make half a turn


def test_a_shift_moves_features_less_than_pixels() -> None:
    image = torch.zeros(1, 1, 28, 28)
    image[..., 8:20, 12:14] = 1
    moved, features = image.roll(1, 3), ScatteringFeatures(1, 28, 28)

    def gap(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).norm() / a.norm())

    assert gap(features(image), features(moved)) < 0.6 * gap(image, moved)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 64, 64)])
def test_features_have_length_one_and_are_of_one_image_alone(shape: tuple[int, int, int]) -> None:
    features, images = ScatteringFeatures(*shape), pictures(5, *shape)
    made = features(images)
    assert made.shape[1:] == features.shape
    assert torch.allclose(made.flatten(1).norm(dim=1), torch.ones(5), atol=1e-4)
    alone = torch.func.vmap(lambda image: features(image[None])[0])(images)
    assert torch.allclose(made, alone, atol=1e-6)


def test_a_black_image_is_no_trouble() -> None:
    images = torch.zeros(1, 1, 28, 28, requires_grad=True)
    made = ScatteringFeatures(1, 28, 28)(images)
    made.sum().backward()
    assert torch.isfinite(made).all()
    assert torch.isfinite(images.grad).all()


def test_large_images_are_seen_coarsely() -> None:
    assert ScatteringFeatures(3, 64, 64).shape == ScatteringFeatures(3, 32, 32).shape == (243, 8, 8)
