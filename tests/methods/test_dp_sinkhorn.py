"""DP-Sinkhorn: sums are the gradients of the semi-dual objective, rows are bounded, points share the records evenly."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.methods.dp_sinkhorn import LEAST_HELD, DPSinkhorn, Transport
from sfumato.networks.low_frequencies import LowFrequencies
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages
from sfumato.values import Spec

from toys import ToySource, digits, digits_known, expect_randomness_of_its_own, fitted, halves, toy

SMALL = DPSinkhorn(rounds=4, points=6, steps=5, batch=12, hidden=32, codes=4)


def transport_of(method: DPSinkhorn, source: ToySource) -> tuple[Transport, Tensor, LowFrequencies]:
    """A transport with potentials that differ, and points (k, m, d) in low frequencies."""
    draw = torch.Generator().manual_seed(0)
    transport, code = Transport(method, source.spec, 0.0), LowFrequencies(source.spec.shape, method.frequencies)
    transport.potentials = transport.epsilon * torch.randn(transport.potentials.shape, generator=draw)
    points = 0.5 * torch.randn(len(source.spec.classes), method.points, code.length, generator=draw)
    return transport, points, code


def sums_of(transport: Transport, points: Tensor, source: ToySource, code: LowFrequencies) -> Tensor:
    """Exact sums, asked as the method asks them."""
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)))
    query = private.mapped(lambda image: code.encode(image)[None, None]).open(
        GaussianSum(noise_multiplier=0.0), purpose="test"
    )
    return query.per_class(transport.row(points), l2_bound=1.0)


def test_without_noise_the_sums_are_the_gradient_of_the_semi_dual_objective():
    source = toy(90, side=4)
    method = dataclasses.replace(SMALL, frequencies=3, temperature=0.05, reach=100.0)  # nothing is clipped
    transport, points, code = transport_of(method, source)
    sums = sums_of(transport, points, source, code)
    x, v = points.double().requires_grad_(), transport.potentials.double().requires_grad_()
    records = code.encode(torch.from_numpy(source.pixels).float() / 255).half().double()  # as the core keeps them
    objective = torch.zeros(())
    for c in range(3):  # E_y[-epsilon log mean_i exp((v_i - c(x_i, y)) / epsilon)] + mean v, summed over its records
        mine = records[source.labels == c]
        cost = torch.cdist(mine, x[c]).square() / 2
        soft = -transport.epsilon * (((v[c] - cost) / transport.epsilon).logsumexp(1) - math.log(method.points))
        objective = objective + soft.sum() + len(mine) * v[c].mean()
    of_points, of_potentials = torch.autograd.grad(objective, (x, v))
    pulls = sums[..., 1:] * transport.bound / math.sqrt(1 - method.count_share)
    torch.testing.assert_close(pulls, -of_points, atol=5e-2, rtol=1e-3)
    held = sums[..., 0] / math.sqrt(method.count_share)
    torch.testing.assert_close(30 / method.points - held, of_potentials, atol=2e-3, rtol=1e-3)


def test_the_steps_that_follow_from_the_sums_are_down_that_gradient():
    source = toy(90, side=4)
    method = dataclasses.replace(SMALL, frequencies=3, temperature=0.05, reach=5.0)
    transport, points, code = transport_of(method, source)
    sums, before = sums_of(transport, points, source, code).float(), transport.potentials
    moves = transport.directions(points, sums, None)
    held = sums[..., 0] / math.sqrt(method.count_share) / (30 / method.points)
    whole = sums[..., 1:] * transport.bound / math.sqrt(1 - method.count_share) / (30 / method.points)
    expected = whole / held.clamp(min=LEAST_HELD)[:, :, None]  # to the barycentre of its records, and not beyond
    torch.testing.assert_close(moves, expected, atol=1e-3, rtol=1e-3)
    step = method.potential_rate * transport.bound**2 * (1 - held).clamp(-1, 1)
    torch.testing.assert_close(transport.potentials - before, step, atol=1e-4, rtol=1e-3)


def test_generated_images_pull_as_records_would():
    source = toy(90, side=4)
    method = dataclasses.replace(SMALL, frequencies=3, temperature=0.05, reach=100.0)
    transport, points, code = transport_of(method, source)
    sums = sums_of(transport, points, source, code)
    images = code.encode(torch.from_numpy(source.pixels).float() / 255).half().float()
    alike = torch.stack([images[source.labels == c] for c in range(3)])
    pulls = sums[..., 1:] * transport.bound / math.sqrt(1 - method.count_share) / (30 / method.points)
    torch.testing.assert_close(transport.generated_pulls(points, alike)[0].double(), pulls, atol=1e-2, rtol=1e-3)
    assert transport.directions(points, sums.float(), alike).abs().max() < 1e-2  # alike already: nothing moves


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.9999])
@pytest.mark.parametrize("temperature", [1e-9, 1e-3, 1e3])
def test_a_row_is_never_longer_than_the_bound(share: float, temperature: float):
    draw = torch.Generator().manual_seed(0)
    method = dataclasses.replace(SMALL, count_share=share, temperature=temperature, reach=0.05)
    spec = halves().spec
    transport = Transport(method, spec, 1.0)
    for scale in (0.0, 1e-3, 1.0, 1e4):
        transport.potentials = scale * torch.randn(3, 6, generator=draw)
        row = transport.row(scale * torch.randn(3, 6, 64, generator=draw))
        for far in (0.0, 1.0, 1e5):
            made = row(far * torch.randn(1, 1, 64, generator=draw), torch.tensor(1))
            assert float(made.double().norm()) <= 1 + 1e-5


def test_one_record_moves_all_points_of_its_class_by_one_bound_together():
    source = halves(90)
    method = dataclasses.replace(SMALL, temperature=10.0, reach=0.05)  # the plan of a record reaches all points
    transport, points, code = transport_of(method, source)
    moved = sums_of(transport, points, source, code) - sums_of(transport, points, source.without(4), code)
    label = int(source.labels[4])
    assert (moved[label, :, 1:].norm(dim=1) > 0).all()
    assert moved.norm() <= 1 + 1e-5
    moved[label] = 0
    assert (moved == 0).all()


def test_points_come_to_stand_for_equally_many_records():
    rng = np.random.default_rng(0)
    bright = np.where(rng.random(200) < 0.9, 60, 220)  # one record in ten is of another kind
    source = ToySource(np.broadcast_to(bright[:, None, None, None], (200, 1, 4, 4)), np.zeros(200), ("only",))
    method = dataclasses.replace(SMALL, points=4, rounds=60, canvas="pixels", start="nothing", temperature=5e-3)
    images = fitted(method, source, math.inf, count=400)
    levels = images.unit().mean((1, 2, 3))
    assert 0.2 < levels.amin() < 0.3 < 0.4 < levels.amax()  # three and a bit of four points stand for the dark ones
    assert 0.6 < (levels < 0.3).float().mean() < 0.9


@pytest.mark.parametrize("canvas", ["pixels", "generator"])
@pytest.mark.parametrize("start", ["painted", "nothing"])
def test_samples_follow_the_data_at_infinite_budget(canvas: str, start: str):
    source = halves()
    method = dataclasses.replace(SMALL, canvas=canvas, start=start, rounds=8, steps=40)
    made = fitted(method, source, math.inf, count=150)
    for c in range(3):
        ours = made.unit()[made.labels == c].mean(0)
        theirs = torch.from_numpy(source.pixels[source.labels == c]).float().mean(0) / 255
        assert (ours - theirs).abs().mean() < 0.1


def test_released_digits_teach_a_classifier():
    source = digits()[0]
    method = DPSinkhorn.for_task(source.spec, Budget(10.0, 1e-4))
    assert digits_known(fitted(method, source, 10.0, count=300)) > 0.8


@pytest.mark.parametrize("start", ["painted", "nothing"])
def test_every_round_is_charged_and_every_charged_round_is_asked(start: str):
    ledger = Ledger(Budget(1.0, 1e-4))
    private = PrivateImages.seal(halves(90), ledger)
    method = dataclasses.replace(SMALL, start=start)
    method.fit(private, None)
    assert len(ledger.charges) == len(method.plan(private.spec))
    assert ledger.charges[-1].mechanism.rounds == SMALL.rounds
    assert all(ledger.unbegun(charge) == 0 for charge in ledger.charges)


@pytest.mark.parametrize("canvas", ["pixels", "generator"])
def test_the_same_answers_give_the_same_bytes_whatever_the_global_seed(canvas: str):
    expect_randomness_of_its_own(dataclasses.replace(SMALL, canvas=canvas), halves(90))


def test_defaults_follow_public_facts():
    digits_like, few = Spec(60_000, 1, 28, 28, ("a",) * 10), Spec(90, 1, 8, 8, ("a",) * 3)
    most, less = (DPSinkhorn.for_task(digits_like, Budget(epsilon, 1e-5)) for epsilon in (10.0, 1.0))
    least = DPSinkhorn.for_task(few, Budget(1.0, 1e-4))
    assert most.points > less.points > least.points
    assert least.seconds(few) < most.seconds(digits_like) < 25 * 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "real"},
        {"canvas": "paper"},
        {"points": 0},
        {"rounds": 0},
        {"temperature": 0.0},
        {"count_share": 1.0},
        {"fresh": 0},
        {"seed": -1},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match="Expected"):
        dataclasses.replace(SMALL, **wrong)  # type: ignore[arg-type]
