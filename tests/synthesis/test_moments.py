"""Noisy moments: packing keeps norms, eigenvalues of noise are dropped, the others corrected."""

from __future__ import annotations

import math

import torch

from sfumato.synthesis import moments

DRAW = torch.Generator().manual_seed(0)


def test_packing_keeps_the_norm_and_the_matrix() -> None:
    vector = torch.randn(17, generator=DRAW)
    row = moments.packed(vector)
    assert row.shape == (17 * 18 // 2,)
    torch.testing.assert_close(row.norm(), vector.square().sum())
    torch.testing.assert_close(moments.unpacked(row), torch.outer(vector, vector))


def test_packed_noise_is_a_symmetric_matrix_that_is_quieter_off_the_diagonal() -> None:
    matrices = moments.unpacked(torch.randn(20_000, 3, generator=DRAW))
    torch.testing.assert_close(
        matrices.std(0), torch.tensor([[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]]), atol=0.02, rtol=0
    )


def noise_matrix(size: int, deviation: float) -> torch.Tensor:
    return moments.unpacked(deviation * math.sqrt(2) * torch.randn(size * (size + 1) // 2, generator=DRAW))


def test_axes_that_stand_out_are_found_with_their_variances() -> None:
    basis, _ = torch.linalg.qr(torch.randn(100, 100, generator=DRAW))
    true = torch.tensor([9.0, 6.0, 4.0])
    noisy = (basis[:, :3] * true) @ basis[:, :3].T + noise_matrix(100, 0.1)  # noise alone reaches 2
    axes, variances = moments.denoised_spectrum(noisy, deviation=0.1, most=20)
    torch.testing.assert_close(variances[:3], true, atol=0.35, rtol=0)
    assert ((axes[:, :3] * basis[:, :3]).sum(0).abs() > 0.9).all()
    assert variances[3:].max() < 1.2  # the few that are kept anyway


def test_noise_alone_has_no_axes_beyond_the_least() -> None:
    axes, _ = moments.denoised_spectrum(noise_matrix(150, 1.0), deviation=1.0, most=50)
    assert axes.shape[1] == moments.LEAST_AXES


def test_without_noise_nothing_is_lost() -> None:
    values = torch.arange(1.0, 9.0).flip(0)
    _, variances = moments.denoised_spectrum(torch.diag(values), deviation=0.0, most=8)
    torch.testing.assert_close(variances, values)
    means = torch.randn(3, 8, generator=DRAW)
    kept = moments.wiener_shrunk(means, torch.zeros(8).long(), torch.zeros(3))
    torch.testing.assert_close(kept, means)


def test_shrinking_brings_means_closer_to_the_truth_and_rare_classes_most() -> None:
    bands = torch.arange(200) // 20
    true = torch.randn(5, 200, generator=DRAW) * torch.exp(-bands / 2.0)  # little in high bands
    deviations = torch.tensor([0.2, 0.2, 0.2, 0.2, 2.0])
    noisy = true + deviations[:, None] * torch.randn(5, 200, generator=DRAW)
    before, after = (
        (noisy - true).square().sum(1),
        (moments.wiener_shrunk(noisy, bands, deviations.square()) - true).square().sum(1),
    )
    assert (after < before).all()
    assert after[4] < 0.3 * before[4]


def test_a_class_is_trusted_as_far_as_it_stands_out_of_noise() -> None:
    pooled, own = torch.tensor([4.0, 2.0, 1.0]), torch.diag(torch.tensor([8.0, 1.0, 1.0]))
    values, axes = moments.class_covariance(own, pooled, deviation=1e-6)
    torch.testing.assert_close((axes * values) @ axes.T, own, atol=1e-3, rtol=0)
    values, axes = moments.class_covariance(own, pooled, deviation=100.0)
    torch.testing.assert_close((axes * values) @ axes.T, torch.diag(pooled), atol=1e-3, rtol=0)


def test_components_together_have_the_mean_and_covariance_of_the_class() -> None:
    variances = torch.tensor([4.0, 1.0, 0.5])
    centres = torch.tensor([[2.0, 0.1, 0.0], [-1.0, 0.4, 0.2], [0.5, -0.6, 0.1]])
    mixture = moments.mixture_of(centres, torch.tensor([10.0, 30.0, 60.0]), variances)
    drawn = mixture.draw(200_000, DRAW)
    torch.testing.assert_close(drawn.mean(0), torch.zeros(3), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.T.cov(), torch.diag(variances), atol=0.05, rtol=0)


def test_centres_that_differ_by_noise_alone_become_one() -> None:
    sizes = torch.full((12,), 100.0)
    sums = 50 * torch.randn(12, 6, generator=DRAW)
    updated = moments.updated_centres(sums, sizes, deviation=50.0)
    assert updated.norm() < 0.7 * (sums / 100).norm()
    kept = moments.updated_centres(1000 * sums, sizes, deviation=50.0)
    torch.testing.assert_close(kept, 10 * sums, rtol=0.01, atol=0.1)
