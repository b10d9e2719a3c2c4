"""Features of colour images: of unit length, of one image alone, and the same for its mirror image."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.photograph_features import PhotographFeatures


def pictures(count: int, *shape: int) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "shape", [(3, 8, 8), (3, 9, 31), (3, 32, 32), (3, 64, 48), (3, 224, 224), (1, 28, 28)], ids=str
)
def test_features_have_length_one_and_are_of_one_image_alone(shape: tuple[int, int, int]) -> None:
    features, images = PhotographFeatures(*shape), pictures(3, *shape)
    made = features(images)
    assert made.shape[1:] == features.shape
    assert torch.allclose(made.flatten(1).norm(dim=1), torch.ones(3), atol=1e-4)
    assert torch.allclose(features(images.flip(3)), made, atol=1e-5)
    alone = torch.func.vmap(lambda image: features(image[None])[0], chunk_size=2)(images)
    assert torch.allclose(alone, made, atol=1e-5)


def test_patches_and_scattering_are_half_of_the_squared_length_each() -> None:
    features = PhotographFeatures(3, 32, 32)
    made, patches = features(pictures(3, 3, 32, 32)).flatten(1), features.patches.shape.numel()
    assert torch.allclose(made[:, :patches].square().sum(1), torch.full((3,), 0.5), atol=1e-4)
    assert torch.allclose(made[:, patches:].square().sum(1), torch.full((3,), 0.5), atol=1e-4)


def test_scattering_sees_the_brightness_alone() -> None:
    features, images = PhotographFeatures(3, 32, 32), pictures(2, 3, 32, 32)
    made, permuted = (features(seen).flatten(1) for seen in (images, images[:, [2, 0, 1]]))
    patches = features.patches.shape.numel()
    assert torch.allclose(permuted[:, patches:], made[:, patches:], atol=1e-5)
    assert (permuted[:, :patches] - made[:, :patches]).norm() > 0.01, "patches see colours"


def test_a_flat_image_has_finite_features() -> None:
    assert torch.isfinite(PhotographFeatures(3, 32, 32)(torch.zeros(1, 3, 32, 32))).all()
