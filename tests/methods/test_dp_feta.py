"""DP-FETA: two questions out of one budget, what central images teach, randomness of its own, published settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.errors import UsageError
from sfumato.methods.dp_feta import DPFETA
from sfumato.privacy import Budget, Ledger, PrivateImages, epsilon_pld
from sfumato.synthesis import central_images
from sfumato.values import Images, Spec

from toys import ToySource, expect_randomness_of_its_own, fitted, halves

SMALL = DPFETA(
    width=8, rounds=2, sampling=0.3, multiplicity=2, sampler_steps=5, steps=20, batch=32, central_rounds=2, varied=100
)


def expect_bright_halves(images: Images) -> None:
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 30
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 30


def test_the_plan_is_central_images_and_gradients_out_of_one_budget() -> None:
    central, gradients = SMALL.plan(Spec(1_000, 1, 8, 8, ("a", "b")))
    assert (central.rounds, central.sampling, central.share) == (2, 1.0, 0.05)
    assert (gradients.rounds, gradients.sampling, gradients.share) == (2, 0.3, 0.95)


def test_both_questions_are_charged_and_together_spend_the_budget() -> None:
    source, ledger = halves(60), Ledger(Budget(1.0, 1e-4))
    # a plan without sampling is calibrated at once
    replace(SMALL, sampling=1.0).fit(PrivateImages.seal(source, ledger), None)
    charged = [charge.mechanism for charge in ledger.charges]
    assert [charge.purpose for charge in ledger.charges] == [asked.purpose for asked in SMALL.plan(source.spec)]
    assert 0.999 < epsilon_pld(charged, 1e-4) <= 1.0
    assert epsilon_pld(charged[1:], 1e-4) < 0.99  # the gradients alone would leave the first question unpaid


def test_classes_are_learnt_from_central_images_although_gradients_are_few() -> None:
    expect_bright_halves(fitted(replace(SMALL, sampling=1.0, steps=60, plain_rate=8e-3), halves(120), 20.0, count=60))


def test_classes_of_one_record_make_no_division_by_zero() -> None:
    source = halves(60)
    lonely = ToySource(source.pixels, np.arange(60).clip(max=2), source.spec.classes)
    assert fitted(replace(SMALL, sampling=1.0), lonely, 1.0, count=6).pixels.shape == (6, 1, 8, 8)


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(replace(SMALL, sampling=1.0), halves(60))


def test_fine_waves_are_not_taken_to_be_as_weak_as_in_central_images() -> None:
    """Else the private training could not bring them: the network's output is scaled by their deviation."""
    source, spec = halves(60), halves(60).spec
    network = SMALL.untrained(spec)
    before = network.deviation.clone()
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-4)))
    central, _ = private.ledger.calibrate(*SMALL.plan(spec))
    SMALL.pretrain_on_central_images(private, central, network)
    assert (network.deviation >= before).all()
    assert network.mean.abs().max() > 0


@pytest.mark.parametrize("shape", [(1, 27, 29), (3, 32, 32)])
def test_it_takes_odd_and_colour_images(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, *shape))
    made = fitted(replace(SMALL, rounds=1, sampling=1.0, steps=3), ToySource(pixels, np.arange(30) % 3), 1.0, count=6)
    assert made.pixels.shape == (6, *shape)


def test_the_published_settings_can_be_planned() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    published = DPFETA.paper(spec)
    central, _ = published.plan(spec)
    assert (central.rounds, published.central_halves, published.steps, published.batch) == (5, False, 2_000, 50)
    assert central.sampling == pytest.approx(6_000 / 55_000)
    assert published.seconds(spec) > 10 * DPFETA.for_task(spec, Budget(1.0, 1e-5)).seconds(spec)


def test_the_published_share_is_the_published_noise_at_epsilon_one() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    central, _ = Ledger(Budget(1.0, 1.666e-6)).calibrate(*DPFETA.paper(spec).plan(spec))
    assert central.noise_multiplier == pytest.approx(5, rel=0.1)  # PLD pays for a little less noise than RDP


def test_more_of_the_budget_goes_to_central_images_where_classes_are_small() -> None:
    methods = [
        DPFETA.for_task(Spec(count, 1, 28, 28, ("a",) * 10), Budget(epsilon, 1e-6))
        for count, epsilon in ((60_000, 10.0), (60_000, 1.0), (2_000, 1.0))
    ]
    shares = [method.central_share for method in methods]
    assert shares == sorted(shares)
    assert shares[0] < shares[2]
    assert [method.central_halves for method in methods] == [True, True, False]


def test_small_versions_are_at_most_half_as_wide() -> None:
    sides = {side: central_images._SmallCode(Spec(10, 1, side, side, ("a",))).small[0] for side in (8, 28, 32, 64, 128)}
    assert sides == {8: 8, 28: 14, 32: 16, 64: 16, 128: 16}


def test_central_images_that_nobody_would_look_at_are_refused_before_anything_is_asked() -> None:
    ledger = Ledger(Budget(1.0, 1e-4))
    private = PrivateImages.seal(halves(60), ledger)
    enough = replace(SMALL, varied=9)  # three classes, and their halves in the second round
    assert len(enough.plan(private.spec)) == 2
    with pytest.raises(UsageError, match="9 central images"):
        replace(SMALL, varied=8).fit(private, None)
    assert not ledger.charges
    private.close()


def test_by_default_there_are_versions_of_all_central_images() -> None:
    for classes, count in ((2, 50), (10, 1_000), (1_000, 2_000), (1_000, 10**6)):
        spec = Spec(count, 1, 8, 8, tuple(str(number) for number in range(classes)))
        assert DPFETA.for_task(spec, Budget(1.0, 1e-6)).plan(spec)
