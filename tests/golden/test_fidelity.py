"""Fidelity scores agree with the libraries that others use, on the same features."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor, nn

from sfumato.metrics.inception_score import inception_scores
from sfumato.statistics.gaussians import frechet, frechet_distance
from sfumato.statistics.neighbours import kernel_distance, overlap

DIMENSIONS = 24


class AsFeatures(nn.Module):
    """The images are features already."""

    num_features = DIMENSIONS

    def forward(self, rows: Tensor) -> Tensor:
        return rows


def clusters(count: int, *, seed: int, shift: float, dimensions: int = DIMENSIONS) -> Tensor:
    """Four correlated lumps, of unequal spread; positive, as pooled features are."""
    draw = torch.Generator().manual_seed(seed)
    shape = torch.Generator().manual_seed(99)
    centres = 2 * torch.randn(4, dimensions, generator=shape)
    mixing = torch.randn(dimensions, dimensions, generator=shape) / dimensions**0.5
    spread = torch.linspace(0.2, 1.5, dimensions)
    rows = centres[torch.arange(count) % 4] + (torch.randn(count, dimensions, generator=draw) * spread) @ mixing
    return (rows + shift).relu()


@pytest.fixture(scope="module")
def sets() -> tuple[Tensor, Tensor]:
    return clusters(700, seed=1, shift=0.3), clusters(600, seed=2, shift=0.0)


def torchmetrics_image(module: str, name: str) -> type:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip(f"torchmetrics.image.{module}", reason="torchmetrics is not installed")
    return getattr(found, name)


def by_matrix_root(ours: Tensor, theirs: Tensor) -> float:
    a, b = ours.double().numpy(), theirs.double().numpy()
    first, second = np.cov(a.T), np.cov(b.T)
    root = scipy.linalg.sqrtm(first @ second)
    apart = a.mean(0) - b.mean(0)
    return float(apart @ apart + np.trace(first) + np.trace(second) - 2 * np.trace(root).real)


def test_fid_is_the_formula_with_a_matrix_root(sets: tuple[Tensor, Tensor]) -> None:
    expected = by_matrix_root(*sets)
    assert expected > 0.5
    assert frechet_distance(*sets) == pytest.approx(expected, rel=1e-3)
    assert frechet_distance(*reversed(sets)) == pytest.approx(expected, rel=1e-3)
    assert frechet(*sets).distance == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("ours", "theirs"), [(20, 30), (20, 200), (200, 20)])
def test_fid_with_fewer_images_than_features(ours: int, theirs: int) -> None:
    a = clusters(ours, seed=3, shift=0.3, dimensions=60)
    b = clusters(theirs, seed=4, shift=0.0, dimensions=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the root of a singular matrix
        expected = by_matrix_root(a, b)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-3)
    assert frechet(a, b).distance == pytest.approx(expected, rel=1e-3)


def test_fid_is_torchmetrics_fid(sets: tuple[Tensor, Tensor]) -> None:
    theirs = torchmetrics_image("fid", "FrechetInceptionDistance")(feature=AsFeatures())
    theirs.set_dtype(torch.float64)
    for rows, real in zip(sets, (False, True), strict=True):
        theirs.update(rows.double(), real=real)
    assert frechet_distance(*sets) == pytest.approx(theirs.compute().item(), rel=1e-3)


def test_kid_is_torchmetrics_kid() -> None:
    sets = clusters(500, seed=1, shift=0.3), clusters(500, seed=2, shift=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it keeps features in memory, and says so
        theirs = torchmetrics_image("kid", "KernelInceptionDistance")(feature=AsFeatures(), subsets=1, subset_size=500)
    for rows, real in zip(sets, (False, True), strict=True):
        theirs.update(rows, real=real)
    with torch.random.fork_rng(devices=[]):
        expected = theirs.compute()[0].item()
    assert expected > 0.01
    assert kernel_distance(*sets, subset=500).value == pytest.approx(expected, rel=1e-3)


def test_inception_score_is_the_formula_and_torchmetrics(sets: tuple[Tensor, Tensor]) -> None:
    logits = 2 * sets[0]
    shares = torch.softmax(logits.double(), 1).numpy()
    parts = np.array_split(shares, 10)
    expected = [np.exp(np.mean(np.sum(p * np.log(p / p.mean(0)), 1))) for p in parts]
    assert inception_scores(logits, splits=10).tolist() == pytest.approx(expected, rel=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torchmetrics_image("inception", "InceptionScore")(feature=AsFeatures(), splits=1)
        theirs.update(logits)
        with torch.random.fork_rng(devices=[]):
            whole = theirs.compute()[0].item()  # and a deviation over one split, which it warns of
    assert inception_scores(logits, splits=1).item() == pytest.approx(whole, rel=1e-3)
    assert 1.2 < whole < DIMENSIONS


@pytest.mark.parametrize("k", [3, 5, 7])
def test_neighbourhoods_are_those_of_prdc(sets: tuple[Tensor, Tensor], k: int) -> None:
    prdc = pytest.importorskip("prdc", reason="prdc is not installed")
    with contextlib.redirect_stdout(io.StringIO()):
        expected = prdc.compute_prdc(real_features=sets[1].numpy(), fake_features=sets[0].numpy(), nearest_k=k)
    found = overlap(*sets, neighbours=k)
    means = [value.float().mean().item() for value in found]
    assert means == pytest.approx([expected[n] for n in ("precision", "density", "recall", "coverage")], rel=1e-3)
    assert 0.02 < means[0] < 0.98
