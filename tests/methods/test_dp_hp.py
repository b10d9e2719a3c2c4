"""DP-HP: Mehler's formula, rows of norm at most 1, an unbiased distance, and classes that are equally bright."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.special import eval_hermite

from sfumato.errors import UsageError
from sfumato.methods.dp_hp import (
    DPHP,
    centred_and_scaled,
    hermite_features,
    product_features,
    sum_features,
)
from sfumato.privacy import Budget
from sfumato.synthesis.embedding import squared_mmd
from sfumato.values import Spec

from toys import ToySource, fitted, halves

CLASSES = ("left", "right", "all")
QUICK = DPHP(sets=40, steps=5, batch=48, latent=4, hidden=32, codes=4)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9])
def test_features_are_the_papers_definition(rho: float) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    made = hermite_features(x, 12, rho)
    for c in range(13):
        norm = 2**c * math.factorial(c) * math.sqrt((1 - rho) / (1 + rho))  # N_c
        f = eval_hermite(c, x.numpy()) * np.exp(-rho / (1 + rho) * x.numpy() ** 2) / math.sqrt(norm)
        np.testing.assert_allclose(made[c].numpy(), math.sqrt((1 - rho) * rho**c) * f, rtol=1e-9, atol=1e-12)


def test_the_first_features_by_hand() -> None:
    # rho = 0.6, x = 1: phi_0 = 0.64^(1/4) exp(-0.6/1.6), phi_1 = sqrt(1.2) phi_0, then the recurrence.
    zeroth = math.sqrt(0.8) * math.exp(-0.375)
    expected = [zeroth, math.sqrt(1.2) * zeroth, (math.sqrt(0.72) - 0.6 / math.sqrt(2)) * zeroth]
    assert hermite_features(torch.ones(1, dtype=torch.float64), 2, 0.6)[:, 0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("length", [0.2, 0.4, 1.0])
def test_mehlers_formula_gives_the_gaussian_kernel_of_that_length(length: float) -> None:
    x = torch.linspace(0, 1, 11, dtype=torch.float64)
    phi = hermite_features(centred_and_scaled(x, 0.5, length), 40, 0.5)
    kernel = torch.exp(-(x[:, None] - x).square() / (2 * length**2))
    torch.testing.assert_close(phi.T @ phi, kernel, atol=1e-9, rtol=0)


def test_high_orders_neither_overflow_nor_drift() -> None:
    x = torch.linspace(0, 1, 101)
    single, double = (hermite_features(centred_and_scaled(v, 0.9, 0.05), 200, 0.9) for v in (x, x.double()))
    assert single.isfinite().all()
    torch.testing.assert_close(single.double(), double, atol=1e-5, rtol=0)
    assert (double.square().sum(0) <= 1 + 1e-12).all()


def test_five_orders_hold_the_kernel_of_the_defaults() -> None:
    kept = sum_features(torch.linspace(0, 1, 101)[:, None], DPHP.sum_order, DPHP.rho, DPHP.sum_length).square().sum(1)
    assert kept.min() > 0.996


@pytest.mark.parametrize("method", [QUICK, DPHP(rho=0.9, sum_order=30, sum_length=0.06, product_pixels=3, sets=50)])
def test_no_image_has_a_longer_row_than_one(method: DPHP) -> None:
    draw = torch.Generator().manual_seed(0)
    spec = Spec(10, 3, 8, 8, CLASSES)
    images = torch.rand(60, spec.pixels, generator=draw)
    images[0], images[1], images[2] = 0, 1, 0.5
    images[3:30] = images[3:30].round()
    norms = method._features(images, method._sets(spec, draw)).norm(dim=1)
    assert norms.max() <= 1 + 1e-5
    assert norms.max() > 0.5


def test_sum_and_product_kernels_against_brute_force() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 6, generator=draw, dtype=torch.float64)
    sets = torch.tensor([[0, 2], [1, 5], [4, 3]])  # two sets of three pixels
    each = torch.exp(-(a - b).square() / (2 * 0.4**2))
    alone = sum_features(a, 40, 0.5, 0.4) @ sum_features(b, 40, 0.5, 0.4)
    together = product_features(a, sets, 20, 0.5, 0.4) @ product_features(b, sets, 20, 0.5, 0.4)
    assert float(alone) == pytest.approx(float(each.mean()), abs=1e-9)
    expected = (each[0] * each[1] * each[4] + each[2] * each[5] * each[3]) / 2
    assert float(together) == pytest.approx(float(expected), abs=1e-5)


def test_sets_have_different_pixels_and_come_from_the_seed_alone() -> None:
    spec = Spec(10, 1, 8, 8, CLASSES)
    sets = DPHP(product_pixels=3, sets=500)._sets(spec, torch.Generator().manual_seed(0))
    assert sets.shape == (3, 500)
    assert all(len(set(column)) == 3 for column in sets.T.tolist())
    assert len(sets.unique()) == 64


def test_the_distance_is_unbiased_where_features_are_short() -> None:
    draw = torch.Generator().manual_seed(0)
    population = sum_features(torch.rand(4_000, 4, generator=draw), 1, 0.7, 0.3)
    assert population.norm(dim=1).max() < 0.95  # with 1 on the diagonal the estimate would be far off
    batches = population[torch.randint(4_000, (20_000 * 5,), generator=draw)].reshape(20_000, 5, -1)
    estimates = squared_mmd(batches, population.mean(0).expand(20_000, -1))
    assert abs(estimates.mean()) < 4 * estimates.std() / math.sqrt(20_000)


def test_a_rare_class_is_as_bright_as_a_common_one() -> None:
    source = halves(600)
    keep = (source.labels != 1) | (np.arange(600) % 60 < 3)  # a twentieth of the right halves
    rare = ToySource(source.pixels[keep], source.labels[keep], CLASSES)
    made = fitted(dataclasses.replace(QUICK, steps=150, hidden=64), rare, math.inf)
    theirs = source.pixels[source.labels == 1].mean()
    assert made.pixels[made.labels == 1].float().mean() == pytest.approx(theirs, rel=0.15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rho": 1.0},
        {"rho": 0.0},
        {"sum_order": 0},
        {"product_order": 201},
        {"sum_length": 0.01},
        {"sum_share": 1.0},
        {"count_share": 0.0},
        {"sets": 0},
        {"steps": 0},
        {"product_pixels": 0},
        {"product_pixels": 30},
        {"seed": -1},
        {"learning_rate": 0.0},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="Expected"):
        DPHP(**wrong)


def test_time_follows_public_facts() -> None:
    few, many = Spec(1_438, 1, 8, 8, CLASSES), Spec(60_000, 1, 28, 28, CLASSES)
    times = [DPHP.for_task(spec, Budget(1.0, 1e-5)).seconds(spec) for spec in (few, many)]
    assert times[0] < 60 < times[1] < 300
