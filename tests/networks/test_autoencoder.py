"""An autoencoder of any size of image; its encoder is a map of one image, and latents have the usual deviation."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.autoencoder import DEVIATION, Autoencoder


@pytest.mark.parametrize("halvings", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 27, 29), (3, 16, 16)])
@torch.no_grad()
def test_images_of_any_size_come_back_in_it(shape: tuple[int, int, int], halvings: int) -> None:
    network = Autoencoder(shape, code=4, halvings=halvings, width=8)
    images = torch.rand(2, *shape)
    latents = network.encode(images)
    assert latents.shape == (2, *network.shape)
    assert network.decode(latents).shape == images.shape
    assert 0 <= float(network.decode(latents).min()) <= float(network.decode(latents).max()) <= 1


def test_the_encoder_runs_under_vmap_and_mixes_no_images() -> None:
    network = Autoencoder((1, 8, 8), code=4, width=8)
    images = torch.rand(5, 1, 8, 8)
    one_by_one = torch.func.vmap(lambda image: network.encode(image[None])[0])(images)
    assert torch.allclose(one_by_one, network.encode(images), atol=1e-5)


def test_latents_have_the_usual_deviation_on_the_images_that_were_measured() -> None:
    network = Autoencoder((1, 8, 8), code=4, width=8)
    images = torch.rand(200, 1, 8, 8)
    before = network.identity
    network.take_statistics(images)
    latents = network.encode(images)
    assert torch.allclose(latents.mean((0, 2, 3)), torch.zeros(4), atol=1e-3)
    assert torch.allclose(latents.std((0, 2, 3)), torch.full((4,), DEVIATION), atol=1e-2)
    assert torch.equal(network.usual_deviations(), torch.full((4,), DEVIATION))
    assert network.identity != before
