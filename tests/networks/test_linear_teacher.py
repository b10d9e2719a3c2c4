"""Whitening and linear heads on fixed features."""

from __future__ import annotations

import pytest
import torch

from sfumato.networks.linear_teacher import LinearHead, WhitenedFeatures
from sfumato.networks.scattering import ScatteringFeatures


def pictures(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_whitened_features_have_no_mean_and_no_strong_direction() -> None:
    torch.manual_seed(0)
    common, images = torch.rand(1, 1, 16, 16), torch.rand(400, 1, 16, 16)
    images = (
        0.5 * common + 0.3 * torch.rand(400, 1, 1, 1) * common.roll(3, 2) + 0.2 * images
    )  # one direction is the strongest
    pixels = (255 * images).byte()
    plain = ScatteringFeatures(1, 16, 16)
    whitened = WhitenedFeatures(plain, pixels[:200], level=0.1)
    seen = pixels[200:].float() / 255
    before, after = plain(seen).flatten(1), whitened(seen).flatten(1)
    assert torch.allclose(after.norm(dim=1), torch.ones(200), atol=1e-4)
    assert after.mean(0).norm() < 0.2 * before.mean(0).norm()

    def first_part(rows: torch.Tensor) -> float:
        variances = torch.linalg.svdvals(rows - rows.mean(0)).square()
        return float(variances[0] / variances.sum())

    assert first_part(after) < 0.3 * first_part(before)
    alone = torch.func.vmap(lambda image: whitened(image[None])[0])(seen[:3])
    assert torch.allclose(alone, whitened(seen[:3]), atol=1e-5)


def test_examples_that_are_all_alike_leave_directions_as_they_are() -> None:
    whitened = WhitenedFeatures(ScatteringFeatures(1, 8, 8), torch.full((20, 1, 8, 8), 9, dtype=torch.uint8), level=0.1)
    assert torch.isfinite(whitened(pictures(3, 1, 8, 8))).all()


class Rows:
    """Features that are the pixels themselves, so that a mean of features is the features of a mean."""

    shape = torch.Size((64, 1, 1))

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.reshape(-1, *self.shape)


def uneven(count: int) -> torch.Tensor:
    """Images with strong directions, far from the origin."""
    draw = torch.Generator().manual_seed(0)
    images = 0.5 + 0.1 * torch.randn(count, 64, generator=draw) * torch.linspace(0.02, 2, 64)
    return (255 * images.clamp(0, 1)).byte().reshape(-1, 1, 8, 8)


@pytest.mark.parametrize("count", [300, 40], ids=["more examples than features", "fewer"])
def test_affine_features_are_an_affine_function_of_the_given_ones(count: int) -> None:
    whitened = WhitenedFeatures(Rows(), uneven(count), level=0.1, affine=True)
    images = pictures(6, 1, 8, 8)
    weights = torch.tensor([0.5, 1.5, -2.0, 0.7, 0.2, 0.1])  # they add up to 1, and one is negative
    mixed = (weights[:, None, None, None] * images).sum(0, keepdim=True)
    made = whitened(images).flatten(1)
    assert torch.allclose(whitened(mixed).flatten(1), (weights[:, None] * made).sum(0), atol=1e-4)
    by_length = WhitenedFeatures(Rows(), uneven(count), level=0.1)
    apart = by_length(mixed).flatten(1) - (weights[:, None] * by_length(images).flatten(1)).sum(0)
    assert apart.norm() > 0.1, "what is brought to unit length is not affine"


def test_affine_features_have_the_directions_of_the_others_and_a_median_length_of_one() -> None:
    examples = uneven(301)
    affine, unit = (WhitenedFeatures(Rows(), examples, level=0.1, affine=affine) for affine in (True, False))
    made = affine(examples.float() / 255).flatten(1)
    assert made.norm(dim=1).median() == pytest.approx(1, abs=1e-4)
    assert torch.allclose(
        torch.nn.functional.normalize(made, dim=1), unit(examples.float() / 255).flatten(1), atol=1e-5
    )


def test_affine_features_of_examples_that_are_all_alike_are_finite_in_half_precision() -> None:
    alike = torch.full((20, 1, 8, 8), 9, dtype=torch.uint8)
    made = WhitenedFeatures(Rows(), alike, level=0.1, affine=True)(pictures(3, 1, 8, 8))
    assert made.half().isfinite().all()


def test_a_head_starts_from_nothing_and_has_a_constant() -> None:
    head = LinearHead(12, 3)
    assert head(pictures(2, 3, 2, 2)).abs().max() == 0
    head.linear.weight.data[:, -1] = torch.tensor([1.0, 2.0, 3.0])
    assert torch.allclose(head(torch.zeros(1, 3, 2, 2)), 0.3 * torch.tensor([[1.0, 2.0, 3.0]]))
