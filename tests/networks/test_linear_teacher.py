"""Whitening and linear heads on fixed features."""

from __future__ import annotations

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


def test_a_head_starts_from_nothing_and_has_a_constant() -> None:
    head = LinearHead(12, 3)
    assert head(pictures(2, 3, 2, 2)).abs().max() == 0
    head.linear.weight.data[:, -1] = torch.tensor([1.0, 2.0, 3.0])
    assert torch.allclose(head(torch.zeros(1, 3, 2, 2)), 0.3 * torch.tensor([[1.0, 2.0, 3.0]]))
