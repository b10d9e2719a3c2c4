"""FETA-Pro: three questions out of one budget, three trainings in order, what it refuses, published settings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.dp_feta import DPFETA
from sfumato.methods.dp_merf import DPMERF
from sfumato.methods.feta_pro import FETAPro
from sfumato.privacy import Budget, Ledger, PrivateImages, epsilon_pld
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.values import Images, Spec

from toys import ToySource, expect_randomness_of_its_own, fitted, halves

SMALL = FETAPro(
    width=8,
    rounds=2,
    sampling=0.3,
    multiplicity=2,
    sampler_steps=5,
    steps=5,
    batch=32,
    central_rounds=2,
    varied=60,
    generated=60,
    generated_steps=10,
    frequencies=50,
    length_scales=(0.3,),
    generator_steps=20,
    generator_batch=48,
    latent=3,
    hidden=32,
    codes=4,
)


def test_the_plan_is_three_questions_out_of_one_budget() -> None:
    central, embedding, gradients = SMALL.plan(Spec(1_000, 1, 8, 8, ("a", "b")))
    assert (central.share, embedding.share, gradients.share) == (0.03, 0.05, pytest.approx(0.92))
    assert (central.rounds, embedding.rounds, gradients.rounds) == (2, 1, 2)


def test_all_questions_are_charged_and_together_spend_the_budget() -> None:
    source, ledger = halves(60), Ledger(Budget(1.0, 1e-4))
    # a plan without sampling is calibrated at once
    replace(SMALL, sampling=1.0).fit(PrivateImages.seal(source, ledger), None)
    charged = [charge.mechanism for charge in ledger.charges]
    assert [charge.purpose for charge in ledger.charges] == [asked.purpose for asked in SMALL.plan(source.spec)]
    assert 0.999 < epsilon_pld(charged, 1e-4) <= 1.0


def test_the_embedding_is_the_question_of_dp_merf_and_central_images_those_of_dp_feta() -> None:
    spec = halves().spec
    central, embedding, _ = SMALL.plan(spec)
    assert embedding.purpose == DPMERF().plan(spec)[0].purpose
    assert central.purpose == DPFETA().plan(spec)[0].purpose


def test_classes_are_learnt_although_gradients_are_few() -> None:
    method = replace(SMALL, sampling=1.0, generator_steps=60, generated_steps=60, generated=150, plain_rate=8e-3)
    images = fitted(method, halves(120), 20.0, count=60)
    left, right = images.pixels[..., :4].float().mean((1, 2, 3)), images.pixels[..., 4:].float().mean((1, 2, 3))
    assert left[images.labels == 0].mean() > right[images.labels == 0].mean() + 30
    assert right[images.labels == 1].mean() > left[images.labels == 1].mean() + 30


def test_the_trainings_come_in_order_and_deviations_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, str, torch.Tensor]] = []
    original = FETAPro.pretrain

    def pretrain(self: FETAPro, network: ClassDenoiser, images: Images, spec: Spec, **options: object) -> None:
        original(self, network, images, spec, **options)
        seen.append((self.steps, len(images), str(options["deviations"]), network.deviation.clone()))

    monkeypatch.setattr(FETAPro, "pretrain", pretrain)
    fitted(replace(SMALL, sampling=1.0), halves(60), 1.0, count=3)
    (first, second) = seen
    assert first[:3] == (5, 60, "no smaller")
    assert second[:3] == (10, 60, "kept")
    assert torch.equal(first[3], second[3])


def test_it_has_randomness_of_its_own() -> None:
    expect_randomness_of_its_own(replace(SMALL, sampling=1.0), halves(60))


def test_without_a_budget_it_runs() -> None:
    assert len(fitted(SMALL, halves(60), math.inf, count=6)) == 6


def test_it_takes_odd_images_in_colour() -> None:
    pixels = torch.randint(0, 256, (30, 3, 13, 10), generator=torch.Generator().manual_seed(0)).numpy()
    source = ToySource(pixels, torch.arange(30).numpy() % 3)
    assert fitted(SMALL, source, 1.0, count=3).pixels.shape == (3, 3, 13, 10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"central_share": 0.6, "embedding_share": 0.4},
        {"embedding_share": 0.0},
        {"length_scales": ()},
        {"generator_steps": 0},
        {"generated": 0},
        {"drafts": 0},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(SMALL, **wrong)


def test_the_published_settings_can_be_planned_and_have_the_published_noise_at_epsilon_one() -> None:
    spec = Spec(55_000, 1, 28, 28, tuple("0123456789"))
    published = FETAPro.paper(spec)
    central, embedding, _ = Ledger(Budget(1.0, 1.666e-6)).calibrate(*published.plan(spec))
    # PLD pays for a little less noise than RDP
    assert central.noise_multiplier == pytest.approx(20, rel=0.1)
    assert embedding.noise_multiplier == pytest.approx(26.6, rel=0.1)
    assert published.seconds(spec) > 10 * FETAPro.for_task(spec, Budget(1.0, 1e-5)).seconds(spec)
