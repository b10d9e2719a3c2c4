"""The loss of a record in private training: on the fast path, one bounded row whatever the copies; public rounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.networks.unet_parts import train_only
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages, Recording
from sfumato.privacy.gradients import fast_path
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.synthesis.private_diffusion import PrivateDiffusion
from sfumato.values import Spec

from privacy.gradients.models import BIG, both, summed
from toys import toy

SHAPE = (1, 8, 8)
SPEC = Spec(10, *SHAPE, ("a", "b", "c"))
SMALL = PrivateDiffusion(width=8, rounds=3, sampling=0.5, multiplicity=3)
DEVIATION = SMALL.untrained(SPEC).deviation


def network(settings: PrivateDiffusion = SMALL) -> ClassDenoiser:
    """With weights that hide nothing: an untrained one has layers of zeros."""
    made = settings.untrained(SPEC)
    draw = torch.Generator().manual_seed(2)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=draw)
    return made


@torch.no_grad()
def loss_of(settings: PrivateDiffusion, number: int) -> float:
    """Of the first record in a round."""
    images, labels, _ = records()
    return float(settings.loss_of_round(SPEC, number, DEVIATION)(network(), images[0], labels[0]))


def records(count: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    images = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))
    return (images * 255).round() / 255, torch.arange(count) % 3, torch.ones(count, dtype=torch.bool)


@pytest.mark.parametrize("trains", ["all", "conditioning", "attention"])
def test_the_fast_path_takes_it_and_equals_the_reference(trains: str) -> None:
    model = network()
    train_only(model.unet, trains)
    fast, reference = (
        summed(rows, *records(), clip=False)
        for rows in both(model, SHAPE, SMALL.loss_of_round(SPEC, 0, DEVIATION), 1e-3)
    )
    assert float((fast - reference).norm() / reference.norm()) < 1e-4


@pytest.mark.parametrize("copies", [1, 2, 8])
def test_one_record_moves_a_sum_by_no_more_than_the_bound_however_many_copies(copies: int) -> None:
    """Copies are averaged before the row is bounded: K copies that were bounded one by one would reach K bounds."""
    loss = replace(SMALL, multiplicity=copies).loss_of_round(SPEC, 0, DEVIATION)
    images, labels, present = records()
    images[1], images[2], images[3] = 1e4, torch.inf, torch.nan
    for rows in both(network(), SHAPE, loss, 1e-6):
        whole = summed(rows, images, labels, present, clip=True)
        assert torch.isfinite(whole).all()
        for record in range(len(images)):
            kept = present.clone()
            kept[record] = False
            moved = float((whole - summed(rows, images, labels, kept, clip=True)).norm()) / BIG
            assert moved <= 1
            assert moved > 0.99 or record in (1, 2, 3)


def test_a_round_replays_on_a_neighbour() -> None:
    data = toy(40, side=8)
    data.pixels[3] = 255
    recording = Recording()
    for source, (noise, tape) in ((data, recording.recorder()), (data.without(3), recording.player())):
        private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)), noise=noise, tape=tape)
        mechanism = GaussianSum(rounds=3, sampling=0.5, noise_multiplier=5.0, purpose="gradients")
        SMALL.train_privately(private, mechanism, network(), what="test")
        private.close()
    assert not recording.violations, recording.violations


def test_the_loss_of_a_record_needs_nothing_but_the_record_and_the_round() -> None:
    losses = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        losses.append(loss_of(SMALL, 5))
    assert losses[0] == losses[1]
    assert losses[0] != loss_of(SMALL, 6)
    assert losses[0] != loss_of(replace(SMALL, seed=1), 5)


def test_the_copies_are_a_mean() -> None:
    """The loss of many copies is about that of few, so that the bound suits any number of them."""
    many, few = (
        sum(loss_of(replace(SMALL, multiplicity=copies), number) for number in range(rounds)) / rounds
        for copies, rounds in ((32, 4), (2, 64))
    )
    assert many == pytest.approx(few, rel=0.35)


def test_only_the_part_that_is_named_is_trained() -> None:
    settings = replace(SMALL, trains="conditioning")
    model = network(settings)
    before = {name: value.clone() for name, value in model.named_parameters()}
    private = PrivateImages.seal(toy(40, side=8), Ledger(Budget(math.inf, 1e-5)))
    settings.train_privately(
        private, GaussianSum(rounds=2, noise_multiplier=0.0, purpose="gradients"), model, what="test"
    )
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert "unet.of_class.weight" in changed
    assert "unet.middle_in.first.weight" not in changed


def test_rounds_follow_from_the_time() -> None:
    small, large = (Spec(60_000, c, s, s, ("a",) * 10) for c, s in ((1, 28), (3, 64)))
    for spec in (small, large):
        chosen = PrivateDiffusion(**PrivateDiffusion.for_rounds(spec, seconds=300))
        assert 30 <= chosen.rounds <= 600
        assert chosen.training_seconds(spec) < 400
        assert PrivateDiffusion.for_task(spec, Budget(1.0, 1e-5)).seconds(spec) < 1_800
    assert PrivateDiffusion.for_rounds(small, seconds=200)["rounds"] < PrivateDiffusion.for_rounds(small)["rounds"]


def test_the_published_settings_are_those_of_the_literature() -> None:
    published = PrivateDiffusion(**PrivateDiffusion.as_published(Spec(55_000, 1, 28, 28, ("a",) * 10)))
    assert published.rounds == pytest.approx(2_100, rel=0.05)
    assert published.sampling == pytest.approx(1 / 14, rel=0.05)
    assert (published.multiplicity, published.l2_bound, published.rate, published.averaging) == (32, 1e-3, 3e-4, 0.999)
    assert published.grid(SPEC).shape == (1, 8, 8)  # pixels
    assert PrivateDiffusion.as_published(Spec(55_000, 3, 64, 64, ("a",) * 2))["multiplicity"] == 4


WRONG = (
    *({"sampler": "euler"}, {"trains": "nothing"}, {"multiplicity": 0}, {"width": 0}),
    *({"lowest": 0.5, "highest": 2.0}, {"guidance": 1.0, "unlabelled": 0.0}),
)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        PrivateDiffusion(**wrong)


def test_the_fast_path_is_taken_for_colour_and_odd_sizes() -> None:
    for shape in ((3, 32, 32), (1, 27, 29), (3, 64, 64)):
        spec = Spec(10, *shape, ("a", "b"))
        loss = SMALL.loss_of_round(spec, 0, SMALL.untrained(spec).deviation)
        weights = fast_path.ModelWeights(SMALL.untrained(spec))
        assert fast_path.record_layers(weights, loss, spec) is not None, shape


def test_a_width_is_rounded_up_to_what_the_norms_take() -> None:
    widths = {width: replace(SMALL, width=width).untrained(SPEC).unet.stem.out_channels for width in (1, 8, 20)}
    assert widths == {1: 8, 8: 8, 20: 24}


def test_at_one_place_a_group_of_the_norms_has_two_channels() -> None:
    """A single value has no deviation, and the norm refuses it: after the budget is spent."""
    one_place = replace(SPEC, height=4, width=4)
    made = replace(SMALL, width=8).untrained(one_place)
    assert made.unet.stem.out_channels == 16
    latents = torch.randn(1, 16, 1, 1, generator=torch.Generator().manual_seed(0))
    assert made(latents, torch.ones(1), torch.zeros(1).long()).isfinite().all()


def test_rounds_of_large_and_small_data_are_a_share_of_it() -> None:
    sampling = {count: PrivateDiffusion.for_rounds(replace(SPEC, count=count))["sampling"] for count in (10**6, 10**3)}
    assert sampling == {10**6: 0.02, 10**3: 0.5}
