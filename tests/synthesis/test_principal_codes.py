"""Codes of images along principal axes: exact where they can be, and images back from them."""

from __future__ import annotations

import numpy as np
import torch

from sfumato.synthesis.principal_codes import PrincipalCodes


def images(count: int = 80, side: int = 8, rank: int = 3) -> torch.Tensor:
    """Smooth images of few degrees of freedom, and a little noise."""
    generator = torch.Generator().manual_seed(3)
    basis = torch.randn(rank, 3, side, side, generator=generator)
    rows = torch.einsum("nr,rchw->nchw", torch.randn(count, rank, generator=generator), basis)
    noise = torch.randn(count, 3, side, side, generator=generator)
    return (128 + 15 * rows + 2 * noise).clamp(0, 255).to(torch.uint8)


def codes_of(pixels: torch.Tensor, count: int) -> PrincipalCodes:
    return PrincipalCodes.of(pixels, count, torch.Generator().manual_seed(0))


def test_the_axes_are_those_of_a_full_decomposition() -> None:
    pixels = images()
    rows = pixels.flatten(1).double().numpy() / 255
    rows -= rows.mean(0)
    _, singular, axes = np.linalg.svd(rows, full_matrices=False)
    found = codes_of(pixels, 3)
    np.testing.assert_allclose(found.deviations.numpy(), singular[:3] / len(rows) ** 0.5, rtol=1e-3)
    np.testing.assert_allclose(np.abs(axes[:3] @ found.axes.double().numpy()), np.eye(3), atol=1e-2)


def test_codes_are_standardised() -> None:
    pixels = images()
    codes = codes_of(pixels, 3).encode(pixels)
    torch.testing.assert_close(codes.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(codes.square().mean(0), torch.ones(3), atol=1e-3, rtol=0)


def test_with_its_own_codes_and_all_detail_an_image_is_itself() -> None:
    pixels = images()
    coder = codes_of(pixels, 3)
    assert coder.moved(pixels, coder.encode(pixels), detail=1.0).equal(pixels)


def test_without_detail_an_image_depends_on_its_codes_alone() -> None:
    pixels = images()
    coder = codes_of(pixels, 3)
    codes = coder.encode(pixels)
    made = coder.moved(pixels, codes, detail=0.0)
    assert made.equal(coder.moved(pixels.flip(0), codes, detail=0.0))
    assert (made.float() - pixels.float()).abs().mean() < 3  # the noise, which is not coded


def test_of_large_images_the_coarse_structure_is_coded() -> None:
    pixels = images(side=16).repeat_interleave(6, 2).repeat_interleave(6, 3)  # 96 pixels a side
    coder = codes_of(pixels, 3)
    assert coder.coded == (3, 64, 64)
    kept = coder.moved(pixels, coder.encode(pixels), detail=1.0)
    assert (kept.int() - pixels.int()).abs().max() <= 1


def test_there_are_no_more_axes_than_images_have() -> None:
    assert codes_of(images(count=5), 40).axes.shape[1] == 4
