"""EDM's preconditioning, noise levels and errors, against its formulas."""

from __future__ import annotations

import pytest
import torch

from sfumato.synthesis.edm import SIGMA_DATA, ClassDenoiser, NoiseLevels, denoising_errors


def denoiser(**settings: int) -> ClassDenoiser:
    return ClassDenoiser(4, 3, **{"width": 8, **settings})


def test_an_untrained_network_gives_the_best_estimate_of_isotropic_data() -> None:
    """Its output is about zero, so what is left is c_skip x, which shrinks noise and keeps what has none."""
    network, noisy = denoiser(), torch.randn(3, 4, 4, 4)
    torch.nn.init.zeros_(network.unet.last.bias)
    sigmas = torch.tensor([1e-3, SIGMA_DATA, 1e3])
    denoised = network(noisy, sigmas, torch.zeros(3).long())
    torch.testing.assert_close(denoised[0], noisy[0], atol=1e-3, rtol=0)
    torch.testing.assert_close(denoised[1], noisy[1] / 2)
    assert denoised[2].abs().max() < 1e-5


def test_the_network_is_asked_for_an_output_of_unit_variance() -> None:
    """The target of the network, (x - c_skip noisy) / c_out, has variance one at every level for data of SIGMA_DATA."""
    draw = torch.Generator().manual_seed(0)
    clean = SIGMA_DATA * torch.randn(20_000, generator=draw)
    for sigma in (0.01, 0.5, 5.0, 80.0):
        noisy = clean + sigma * torch.randn(20_000, generator=draw)
        variance = sigma**2 + SIGMA_DATA**2
        target = (clean - SIGMA_DATA**2 / variance * noisy) / (sigma * SIGMA_DATA / variance**0.5)
        assert float(target.var()) == pytest.approx(1, abs=0.05)
        # and so the weighted error of an output that is zero is one
        errors = denoising_errors(
            (SIGMA_DATA**2 / variance * noisy)[:, None], clean[:, None], torch.full((20_000,), sigma)
        )
        assert float(errors.mean()) == pytest.approx(1, abs=0.05)


def test_levels_have_the_declared_distribution_and_one_comes_from_each_part() -> None:
    levels = NoiseLevels(mean=-1.2, spread=1.2)
    starts = torch.rand(2_000, generator=torch.Generator().manual_seed(0))
    sigmas = levels.spread_evenly(starts, 4)
    assert sigmas.shape == (2_000, 4)
    logs = sigmas.log()
    assert float(logs.mean()) == pytest.approx(-1.2, abs=0.03)
    assert float(logs.std()) == pytest.approx(1.2, abs=0.03)
    assert (sigmas.diff(dim=1) > 0).all()
    assert (sigmas[:, 1] <= levels.at(torch.tensor(0.5)) + 1e-6).all()
    assert levels.at(torch.tensor([0.0, 1.0])).isfinite().all()


def test_the_seed_alone_gives_the_weights() -> None:
    first, second, other = (denoiser(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["unet.stem.weight"], other["unet.stem.weight"])
