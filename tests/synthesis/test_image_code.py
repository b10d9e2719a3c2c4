"""The compact basis: distances are right, images come back, and one image is coded as many are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt

from sfumato.synthesis.image_code import ImageCode, _distance


def objects(count: int = 20, side: int = 28) -> torch.Tensor:
    """Ellipses with a shade, on black."""
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:side, :side] / side - 0.5
    made = [
        ((xx / rng.uniform(0.2, 0.4)) ** 2 + (yy / rng.uniform(0.2, 0.4)) ** 2 < 1)
        * (0.6 + 0.5 * rng.uniform(-1, 1) * xx)
        for _ in range(count)
    ]
    return torch.from_numpy(np.stack(made)[:, None]).float()


@pytest.mark.parametrize("side", [28, 41, 64])
def test_distances_are_those_of_an_exact_transform(side: int) -> None:
    rng = np.random.default_rng(1)
    image = torch.from_numpy((rng.random((side, side)) < 0.03).astype(np.float32)) * 0.9
    inside, reach = image.numpy() > 0.08, side / 7
    exact = np.where(inside, distance_transform_edt(inside) - 0.5, 0.5 - distance_transform_edt(~inside))
    found = _distance(image, 0.08, reach)
    np.testing.assert_allclose(found.numpy(), (np.clip(exact, -reach, reach) / reach + 1) / 2, atol=1e-5)


def test_an_image_that_is_all_ground_or_all_object_is_far_from_any_edge() -> None:
    assert (_distance(torch.zeros(28, 28), 0.08, 4.0) == 0).all()
    assert (_distance(torch.ones(28, 28), 0.08, 4.0) == 1).all()


@pytest.mark.parametrize(("kind", "worst"), [("object", 0.08), ("scene", 0.12), ("strokes", 0.5)])
@pytest.mark.parametrize("inverted", [False, True])
def test_images_come_back(kind: str, worst: float, inverted: bool) -> None:
    images = objects()
    images = 1 - images if inverted else images
    code = ImageCode(kind, (1, 28, 28), inverted=inverted)  # type: ignore[arg-type]
    back = code.decode(torch.func.vmap(code.encode)(images))
    assert (back - images).square().mean().sqrt() < worst


def test_colours_come_back_and_lightness_is_finest() -> None:
    images = torch.nn.functional.interpolate(torch.rand(10, 3, 5, 5), size=(32, 32), mode="bicubic").clamp(0, 1)
    code = ImageCode("scene", (3, 32, 32))
    assert code.length == 16 * 16 + 2 * 8 * 8
    back = code.decode(torch.func.vmap(code.encode)(images))
    assert (back - images).square().mean().sqrt() < 0.03


def test_another_centre_makes_other_codes_and_the_same_images() -> None:
    images = 0.4 * torch.nn.functional.interpolate(torch.rand(10, 1, 5, 5), size=(28, 28), mode="bicubic").clamp(0, 1)
    plain, centred = ImageCode("scene", (1, 28, 28)), ImageCode("scene", (1, 28, 28), lightness=0.2)
    codes = [torch.func.vmap(code.encode)(images) for code in (plain, centred)]
    assert codes[1].norm() < 0.5 * codes[0].norm()
    torch.testing.assert_close(plain.decode(codes[0]), centred.decode(codes[1]), atol=1e-5, rtol=1e-5)


def test_one_image_is_coded_as_many_are() -> None:
    images, code = objects(), ImageCode("object", (1, 28, 28))
    alone = torch.stack([code.encode(image) for image in images])
    torch.testing.assert_close(torch.func.vmap(code.encode)(images), alone)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 20, 33), (3, 64, 64)])
def test_every_shape_has_a_code(shape: tuple[int, int, int]) -> None:
    code = ImageCode("scene", shape)
    images = torch.rand(3, *shape)
    codes = torch.func.vmap(code.encode)(images)
    assert codes.shape == (3, code.length)
    assert code.decode(codes).shape == images.shape
    assert len(code.bands) == code.length
    assert code.coarse.max() < code.length
