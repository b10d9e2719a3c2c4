"""Attacks on a release: exact where they can be, blind to what they may not see, and steady on odd releases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from metrics.digits import reference
from sfumato import contracts
from sfumato.attacks.attribute_inference import AttributeInference
from sfumato.attacks.gan_leaks import GanLeaks
from sfumato.attacks.nearest_neighbour import NearestNeighbour
from sfumato.statistics import densities
from sfumato.statistics.densities import RandomFourierFeatures, log_density_ratio, neighbour_distance, principal_axes
from sfumato.values import Images, Release

ATTACKS = ("attribute-inference", "density-ratio", "domias", "gan-leaks", "nearest-neighbour")
REAL = reference().train


def rows(start: int, stop: int) -> Images:
    order = torch.randperm(len(REAL), generator=torch.Generator().manual_seed(5))[start:stop]
    return Images(REAL.pixels[order], REAL.labels[order], REAL.classes)


def joined(*parts: Images) -> Images:
    return Images(torch.cat([p.pixels for p in parts]), torch.cat([p.labels for p in parts]), REAL.classes)


def released(images: Images) -> Release:
    return Release(Path("r"), {}, images)


MEMBERS, OTHERS, INDEPENDENT, POPULATION = rows(0, 300), rows(300, 600), rows(600, 900), rows(900, 1300)


def auc(ins: Tensor, outs: Tensor) -> float:
    return float((ins[:, None] > outs).double().mean() + (ins[:, None] == outs).double().mean() / 2)


def brute(queries: Images, others: Images) -> Tensor:
    pairs = queries.unit().flatten(1).double()[:, None] - others.unit().flatten(1).double()
    return pairs.square().mean(-1).sqrt().amin(1)


def test_distances_are_exact() -> None:
    near = NearestNeighbour().score(released(INDEPENDENT), MEMBERS, population=POPULATION)
    torch.testing.assert_close(near, -brute(MEMBERS, INDEPENDENT), atol=1e-6, rtol=1e-6)
    calibrated = GanLeaks().score(released(INDEPENDENT), MEMBERS, population=POPULATION)
    expected = brute(MEMBERS, POPULATION) - brute(MEMBERS, INDEPENDENT)
    torch.testing.assert_close(calibrated, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_copied_tenth_stands_out(name: str) -> None:
    copied = rows(0, 30)
    attack = contracts.find("attacks", name)()
    release = released(joined(INDEPENDENT, copied))
    ins, outs = (attack.score(release, images, population=POPULATION) for images in (copied, OTHERS))
    assert auc(ins, outs) > attack.floor_on_copies - 0.05


@pytest.mark.parametrize("name", ATTACKS)
def test_scores_are_repeatable_and_leave_the_global_generator_alone(name: str) -> None:
    attack = contracts.find("attacks", name)()
    few = rows(0, 40)
    before = torch.random.get_rng_state()
    first = attack.score(released(INDEPENDENT), few, population=POPULATION)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first.shape == (40,)
    assert first.isfinite().all()
    assert torch.equal(first, attack.score(released(INDEPENDENT), few, population=POPULATION))
    turned = Images(few.pixels.flip(0), few.labels.flip(0), few.classes)
    again = attack.score(released(INDEPENDENT), turned, population=POPULATION).flip(0)
    torch.testing.assert_close(again, first, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_release_of_one_image_over_and_over(name: str) -> None:
    attack = contracts.find("attacks", name)()
    alike = Images(REAL.pixels[:1].repeat(50, 1, 1, 1), torch.zeros(50, dtype=torch.int64), REAL.classes)
    for population in (POPULATION, alike):
        assert attack.score(released(alike), rows(0, 30), population=population).isfinite().all()


def test_attribute_inference_sees_left_halves_and_labels_alone() -> None:
    def without_right(images: Images) -> Images:
        pixels = images.pixels.clone()
        pixels[..., 4:] = 77
        return replace(images, pixels=pixels)

    attack = AttributeInference()
    whole = attack.score(released(MEMBERS), OTHERS, population=POPULATION)
    half = attack.score(released(without_right(MEMBERS)), without_right(OTHERS), population=without_right(POPULATION))
    assert torch.equal(whole, half)
    mislabelled = replace(OTHERS, labels=(OTHERS.labels + 1) % 10)
    assert whole.mean() > attack.score(released(MEMBERS), mislabelled, population=POPULATION).mean() + 1


def test_density_ratio_is_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    at, ours, theirs = (torch.randn(n, 3, generator=draw, dtype=torch.float64) for n in (7, 20, 30))
    monkeypatch.setattr(densities, "CHUNK_BYTES", 4 * 30 * 2)
    apart = [(at[:, None] - side).norm(dim=-1) for side in (ours, theirs)]
    widths = 0.5 * apart[1].amin(1, keepdim=True)
    kernels = [(-((d / widths) ** 2) / 2).exp().mean(1) for d in apart]
    expected = (kernels[0] / kernels[1]).log()
    torch.testing.assert_close(log_density_ratio(at, ours, theirs, width=0.5), expected, atol=1e-6, rtol=1e-6)


def test_axes_waves_and_neighbours() -> None:
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(400, 6, generator=draw) * torch.tensor([9.0, 3, 1, 0.1, 0.1, 0.1])
    centre, axes = principal_axes(points, most=3, draw=draw)
    torch.testing.assert_close(axes.T @ axes, torch.eye(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(axes[:3].abs().diag(), torch.ones(3), atol=0.02, rtol=0)
    torch.testing.assert_close(centre, points.mean(0), atol=1e-4, rtol=0)
    assert principal_axes(points[:1].repeat(9, 1), most=3, draw=draw)[1].isfinite().all()
    waves = RandomFourierFeatures(6, count=20_000, width=4.0, draw=draw)(points[:20])
    kernel = (-torch.cdist(points[:20], points[:20]).square() / (2 * 4.0**2)).exp()
    torch.testing.assert_close(waves @ waves.T, kernel, atol=0.05, rtol=0)
    assert neighbour_distance(torch.tensor([[0.0], [1.0], [3.0]]), most=3, draw=draw) == pytest.approx(1.0)
