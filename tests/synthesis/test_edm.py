"""EDM's preconditioning, noise levels and errors, against its formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato.synthesis.edm import ClassDenoiser, NoiseLevels, denoising_errors

DATA = torch.tensor([2.0, 0.5, 0.1, 0.05])  # deviations of coefficients


def denoiser(**settings: int) -> ClassDenoiser:
    return ClassDenoiser(DATA, 3, **{"width": 8, **settings})


def gaussian(count: int) -> Tensor:
    """Latents whose coefficients are independent, of mean 0.3."""
    draw = torch.Generator().manual_seed(0)
    return 0.3 + DATA[:, None, None] * torch.randn(count, 4, 4, 4, generator=draw)


@torch.no_grad()
def test_an_untrained_network_gives_the_best_estimate_of_independent_coefficients() -> None:
    """Its output is about zero, so what is left is Wiener's filter: mean + (x - mean) s^2 / (s^2 + sigma^2)."""
    network, clean = denoiser(), gaussian(200)
    network.take_statistics(clean)
    torch.testing.assert_close(network.deviation.flatten(), DATA, rtol=0.05, atol=0)
    torch.nn.init.zeros_(network.unet.last.bias)
    sigmas = torch.full((200,), 0.3)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
    errors = (network(noisy, sigmas, torch.zeros(200).long()) - clean).square().mean((0, 2, 3))
    torch.testing.assert_close(errors, (DATA * 0.3).square() / (DATA**2 + 0.3**2), rtol=0.1, atol=0)


@torch.no_grad()
def test_the_network_is_asked_for_an_output_of_unit_variance() -> None:
    """The error of an output of zero is one at every level and, but for its weight, in every coefficient."""
    network, clean = denoiser(), gaussian(500)
    network.take_statistics(clean)
    torch.nn.init.zeros_(network.unet.last.bias)
    for level in (0.01, 0.5, 5.0, 80.0):
        noisy = clean + level * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
        sigmas = torch.full((500,), level)
        denoised = network(noisy, sigmas, torch.zeros(500).long())
        assert float(denoising_errors(denoised, clean, sigmas, network.deviation).mean()) == pytest.approx(1, abs=0.05)


def test_coefficients_that_never_change_are_no_division_by_zero() -> None:
    network = denoiser()
    network.take_statistics(torch.zeros(5, 4, 2, 2))
    assert network(torch.randn(2, 4, 2, 2), torch.tensor([0.01, 10.0]), torch.zeros(2).long()).isfinite().all()


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
