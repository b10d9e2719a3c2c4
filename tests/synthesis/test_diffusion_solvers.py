"""The solvers on a Gaussian, whose denoiser is known: each gives its mean and its variance back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.synthesis.diffusion_solvers import SOLVERS, Sampling

MEAN, DEVIATION = 0.7, 0.4
COUNT = 20_000


def denoise(noisy: Tensor, sigma: Tensor) -> Tensor:
    """E[x | x + sigma n] of a Gaussian."""
    return (DEVIATION**2 * noisy + sigma**2 * MEAN) / (DEVIATION**2 + sigma**2)


def samples(sampling: Sampling, start: float | None = None, clean: Tensor | None = None) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    level = start or sampling.highest
    noise = level * torch.randn(COUNT, generator=draw)
    return sampling.run(denoise, noise if clean is None else clean + noise, draw, start=start)


@pytest.mark.parametrize(
    ("sampling", "tolerance"),
    [
        (Sampling("dpm", 15), 0.06),
        (Sampling("dpm", 60), 0.02),
        (Sampling("heun", 15), 0.06),
        (Sampling("heun", 60, churn=10), 0.02),
        (Sampling("ddim", 200), 0.02),
    ],
    ids=lambda value: f"{value.kind}-{value.steps}-{value.churn:g}" if isinstance(value, Sampling) else "",
)
def test_a_gaussian_comes_back(sampling: Sampling, tolerance: float) -> None:
    made = samples(sampling)
    assert float(made.mean()) == pytest.approx(MEAN, abs=0.02)  # 20,000 of them: a standard error of 0.003
    assert float(made.std()) == pytest.approx(DEVIATION, rel=tolerance)


@pytest.mark.parametrize("kind", ["dpm", "heun"])
def test_second_order_needs_fewer_steps_than_ddim(kind: str) -> None:
    """Without randomness after the start, each sample should be where the exact flow takes it."""

    def error(sampling: Sampling) -> float:
        draw = torch.Generator().manual_seed(0)
        noisy = sampling.highest * torch.randn(500, dtype=torch.float64, generator=draw)
        made = sampling.run(denoise, noisy, draw)
        scale = DEVIATION / (DEVIATION**2 + sampling.highest**2) ** 0.5  # of the flow's exact solution
        return float((made - (MEAN + scale * (noisy - MEAN))).abs().mean())

    assert error(Sampling(kind, 20)) < error(Sampling("ddim", 20)) / 2
    assert error(Sampling(kind, 80)) < error(Sampling(kind, 20))


def test_churn_replaces_the_noise_of_the_start() -> None:
    """The same start with other randomness on the way ends elsewhere; without churn it ends at the same place."""
    noisy = 40 * torch.randn(2_000, generator=torch.Generator().manual_seed(0))
    for churn, same in ((0.0, True), (30.0, False)):
        sampling = Sampling("heun", 30, churn=churn)
        first, second = (sampling.run(denoise, noisy, torch.Generator().manual_seed(seed)) for seed in (1, 2))
        assert torch.equal(first, second) == same


@pytest.mark.parametrize("kind", SOLVERS)
def test_half_way_in_what_was_there_is_kept_in_part(kind: str) -> None:
    """From a noised value the exact flow keeps a part of it: further in, less of it."""
    clean = torch.full((COUNT,), 2.0)
    kept = [float(samples(Sampling(kind, 30), start=level, clean=clean).mean()) for level in (0.05, 0.4, 5.0)]
    assert kept[0] == pytest.approx(2.0, abs=0.05)
    assert kept[1] == pytest.approx(MEAN + (2 - MEAN) / 2**0.5, abs=0.05)
    assert kept[2] == pytest.approx(MEAN, abs=0.15)


@pytest.mark.parametrize("kind", SOLVERS)
def test_one_step_is_the_denoiser(kind: str) -> None:
    noisy = torch.randn(5)
    made = Sampling(kind, 1).run(denoise, noisy, torch.Generator(), start=0.5)
    torch.testing.assert_close(made, denoise(noisy, torch.tensor(0.5)))


def test_levels_fall_from_the_start_to_zero() -> None:
    levels = Sampling(steps=10).levels(3.0)
    assert levels[0] == pytest.approx(3.0)
    assert levels[-2] == pytest.approx(0.02)
    assert levels[-1] == 0
    assert (levels.diff() < 0).all()


def test_from_a_low_start_levels_go_down_to_a_tenth_of_it() -> None:
    assert Sampling(steps=10).levels(0.05)[-2] == pytest.approx(0.005)


def test_a_range_of_levels_that_could_not_be_kept_is_refused() -> None:
    Sampling(highest=2, lowest=0.2)
    with pytest.raises(UsageError, match="lowest"):
        Sampling(highest=2, lowest=0.3)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="kind"):
        Sampling("euler")
