"""Private Evolution: correct votes, a threshold from known noise, evolution that works, and nothing said beside."""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from networks.exported import export, name_of, seeded
from sfumato.errors import UsageError
from sfumato.making.release import Job, make_release
from sfumato.methods.private_evolution import (
    PrivateEvolution,
    embedding,
    nearest_candidate,
    systematic_resample,
    vote_weights,
)
from sfumato.networks.public_network import public_features
from sfumato.privacy import Budget, GaussianSum, Ledger, PrivateImages
from sfumato.release import read_certificate, statements, verify
from sfumato.synthesis.candidates import Simulator
from sfumato.values import Images, Spec

from toys import ToySource, digits, digits_known, expect_randomness_of_its_own, fitted, fitted_sampler, halves

CLASSES = ("left", "right", "all")
SMALL = PrivateEvolution(steps=4, population=30, dimensions=32)


def votes_of(source: ToySource, table: torch.Tensor) -> torch.Tensor:
    """Exact votes of pixels as features."""
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, 1e-5)))
    query = private.mapped(lambda image: image.flatten()[:, None, None]).open(
        GaussianSum(noise_multiplier=0.0), purpose="test"
    )
    return query.histogram(nearest_candidate(table), bins=table.shape[0] * table.shape[1])


def test_a_record_votes_once_for_the_nearest_candidate_of_its_class():
    rng = np.random.default_rng(1)
    source = ToySource(rng.integers(0, 256, (90, 1, 3, 3)), np.arange(90) % 3, CLASSES)
    table = torch.rand(3, 7, 9, generator=torch.Generator().manual_seed(0))
    seen = torch.from_numpy(source.pixels).reshape(90, 9).float().div(255).half().float()
    expected = torch.zeros(3, 7)
    for features, label in zip(seen, source.labels, strict=True):
        expected[label, (table[label] - features).square().sum(1).argmin()] += 1
    votes = votes_of(source, table)
    torch.testing.assert_close(votes, expected.flatten().double(), atol=1e-4, rtol=0)
    gone = votes - votes_of(source.without(5), table)
    assert sorted(gone.round().tolist()) == [0.0] * 20 + [1.0]
    assert float(gone.norm()) <= 1


def test_the_threshold_cuts_what_is_noise():
    votes = torch.tensor([[10.0, 3.0, 6.0], [1.0, 0.6, 0.2], [-1.0, -3.0, -2.0]])
    worth = vote_weights(votes, threshold=4.0)
    expected = [[6 / 8, 0, 2 / 8], [5 / 6, 1 / 6, 0], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(worth, torch.tensor(expected))


def test_resampling_keeps_shares_and_never_draws_the_dead():
    weights = torch.tensor([0.0, 0.5, 0.25, 0.0, 0.25, 0.0])
    for seed in range(200):
        drawn = systematic_resample(weights, 8, torch.Generator().manual_seed(seed))
        assert torch.bincount(drawn, minlength=6).tolist() == [0, 4, 2, 0, 2, 0]
    assert len(systematic_resample(weights, 0, torch.Generator())) == 0


def test_the_feature_space_distinguishes_black_on_white_from_white_on_black():
    draw = torch.Generator().manual_seed(0)
    for shape in ((1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 64, 48)):
        embed = embedding(Spec(9, *shape, ("a",)), 16, draw)
        pictures = Simulator().random(30, Spec(9, *shape, ("a",)), draw)
        here, bright, other = embed(pictures), embed(0.95 * pictures), embed(1 - pictures)
        assert here.shape == other.shape
        assert ((here - bright).norm(dim=1) < (here - other).norm(dim=1)).all()


@pytest.mark.parametrize("epsilon", [10.0, math.inf])
def test_evolution_finds_what_the_classes_look_like(epsilon: float):
    images = fitted(dataclasses.replace(SMALL, steps=8), halves(), epsilon)
    left, right = images.unit()[..., :4].mean((1, 2, 3)), images.unit()[..., 4:].mean((1, 2, 3))
    assert (left - right)[images.labels == 0].mean() > 0.3
    assert (right - left)[images.labels == 1].mean() > 0.3
    assert torch.minimum(left, right)[images.labels == 2].mean() > 0.4


def test_released_digits_teach_a_classifier():
    source = digits()[0]
    method = PrivateEvolution.for_task(source.spec, Budget(10.0, 1e-4))
    assert digits_known(fitted(method, source, 10.0, count=300)) > 0.6


def test_every_round_is_charged_and_every_charged_round_is_asked():
    ledger = Ledger(Budget(1.0, 1e-4))
    private = PrivateImages.seal(halves(), ledger)
    SMALL.fit(private, None)
    (charge,) = ledger.charges
    assert charge.mechanism.rounds == SMALL.steps
    assert charge.mechanism.sampling == 1.0
    assert ledger.unbegun(charge) == 0


def test_nothing_is_written_beside_the_answers(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        fitted(SMALL, halves(), 1.0)
    assert not caplog.records  # the published code logs exact counts and a private FID here
    assert capfd.readouterr() == ("", "")


def test_classes_are_public_whoever_is_in_them():
    source = halves()
    gone = ToySource(source.pixels, np.where(source.labels == 1, 0, source.labels), CLASSES)
    images = fitted(SMALL, gone, 1.0, count=300)
    assert torch.bincount(images.labels).tolist() == [100, 100, 100]
    assert len(images.pixels[images.labels == 1].flatten(1).unique(dim=0)) > 10
    alone = ToySource(source.pixels, source.labels * 0, ("only",))
    assert len(fitted(SMALL, alone, math.inf)) == 600


def test_the_same_answers_give_the_same_bytes_whatever_the_global_seed():
    expect_randomness_of_its_own(SMALL, halves())


def test_any_number_of_images_in_any_order_of_labels():
    sampler = fitted_sampler(SMALL, halves(), math.inf)
    labels = torch.tensor([2, 0, 0, 1, 2])
    first, second = sampler(labels), sampler(labels)
    assert torch.equal(first.labels, labels)
    assert not torch.equal(first.pixels, second.pixels)
    assert len(sampler(labels[:0])) == 0
    assert sampler(torch.ones(2_500, dtype=torch.int64)).pixels.shape == (2_500, 1, 8, 8)


def test_public_images_are_the_candidates_where_they_are_given():
    stripes = torch.zeros(100, 1, 8, 8, dtype=torch.uint8)
    stripes[:, :, ::2] = torch.arange(100, 200, dtype=torch.uint8)[:, None, None, None]
    public = Images(stripes, torch.zeros(100).long(), ("x",))
    still = dataclasses.replace(SMALL, steps=1, first_degree=0.0, last_degree=0.0)
    images = fitted(still, halves(), math.inf, public=public)
    assert {p.numpy().tobytes() for p in images.pixels} <= {p.numpy().tobytes() for p in stripes}
    with pytest.raises(UsageError, match="Expected public images"):
        fitted(dataclasses.replace(SMALL, source="public"), halves(), 1.0)


def test_a_sampler_may_make_the_first_population_and_anyone_the_variations():
    class Still:
        def random(self, count: int, spec: Spec, draw: torch.Generator) -> torch.Tensor:
            raise AssertionError("the first population was given")

        def vary(self, images: torch.Tensor, degree: float, draw: torch.Generator) -> torch.Tensor:
            return images

    def sampler(labels: torch.Tensor) -> Images:
        pixels = (labels * 50 + 10).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8)
        return Images(pixels, labels, CLASSES)

    private = PrivateImages.seal(halves(), Ledger(Budget(math.inf, 1e-4)))
    images = SMALL.fit(private, None, first=sampler, source=Still())(torch.arange(300) % 3)
    assert torch.equal(images.pixels[:, 0, 0, 0].long(), images.labels * 50 + 10)


def test_with_lookahead_a_candidate_stands_where_its_variations_are():
    ahead = dataclasses.replace(SMALL, lookahead=3)
    assert not torch.equal(fitted(ahead, halves(), math.inf).pixels, fitted(SMALL, halves(), math.inf).pixels)
    sure = dataclasses.replace(ahead, first_degree=0.0, last_degree=0.0)  # a variation is the candidate itself
    table = [
        m._candidate_features(
            torch.rand(2, 5, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
            Simulator(),
            0.0,
            lambda images: images.flatten(1),
            torch.Generator(),
        )
        for m in (sure, dataclasses.replace(sure, lookahead=0))
    ]
    torch.testing.assert_close(table[0], table[1], atol=1e-4, rtol=0)


def test_defaults_follow_public_facts():
    budget = Budget(1.0, 1e-5)
    many = PrivateEvolution.for_task(Spec(60_000, 1, 28, 28, ("a",) * 10), budget)
    few = PrivateEvolution.for_task(Spec(1_400, 1, 8, 8, ("a",) * 10), budget)
    assert many.population * 10 <= 10_000
    assert few.steps < many.steps
    assert few.population < many.population
    loose = PrivateEvolution.for_task(Spec(60_000, 1, 28, 28, ("a",) * 10), Budget(math.inf, 1e-5))
    assert loose.population == many.population == 1_000
    huge = PrivateEvolution.for_task(Spec(10**6, 1, 28, 28, ("a",) * 10), budget)
    assert huge.population == 500  # for time's sake
    assert few.seconds(Spec(1_400, 1, 8, 8, ("a",) * 10)) < many.seconds(Spec(60_000, 1, 28, 28, ("a",) * 10))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"population": 1},
        {"source": "internet"},
        {"lookahead": -1},
        {"threshold": -1.0},
        {"kept": 1.0},
        {"first_degree": 1.5},
        {"first_degree": 0.1, "last_degree": 0.2},
        {"dimensions": 0},
        {"seed": -1},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(UsageError, match="Expected"):
        dataclasses.replace(SMALL, **wrong)  # type: ignore[arg-type]


def test_votes_are_cast_by_the_features_of_a_public_network(tmp_path: Path) -> None:
    network = str(export(tmp_path / "tiny.pt2", seeded()))
    method = dataclasses.replace(SMALL, network=network)
    assert method.public_network() == name_of(Path(network))
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    by_network = embedding(halves().spec, 32, draws[0], network=network)(images)
    expected = public_features(network, (1, 8, 8))(images).flatten(1)
    project = torch.randn(expected.shape[1], 32, generator=draws[1]) / math.sqrt(32)
    torch.testing.assert_close(by_network, expected @ project)
    made = fitted(method, halves(), 100.0, count=90)
    # To these features an image and its mirror image are one, so the half that is bright does not count.
    halves_of = torch.stack([made.unit()[..., :4].mean((1, 2, 3)), made.unit()[..., 4:].mean((1, 2, 3))])
    darker = halves_of.amin(0)
    assert darker[made.labels == 2].mean() > darker[made.labels != 2].mean() + 0.2


def test_a_network_that_is_not_there_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = Ledger(Budget(1.0, 1e-5))
    private = PrivateImages.seal(halves(), ledger)
    with pytest.raises(UsageError, match="efficientnet-lite0, or a file"):
        dataclasses.replace(SMALL, network=str(tmp_path / "none.pt2")).fit(private, None)
    assert not ledger.charges


def test_a_release_by_votes_of_a_network_names_it_and_verifies(tmp_path: Path) -> None:
    network = export(tmp_path / "tiny.pt2", seeded())
    np.savez(tmp_path / "halves.npz", x=halves().pixels.transpose(0, 2, 3, 1), y=halves().labels)
    settings = (("network", str(network)), ("steps", "2"), ("population", "20"))
    job = Job(str(tmp_path / "halves.npz"), "private-evolution", 8.0, count=12, settings=settings)
    folder = make_release(job, tmp_path / "r")
    certificate = read_certificate(folder)
    assert certificate.public.public_network == name_of(network)
    assert statements.NETWORK in certificate.assumptions
    assert verify(folder).ok, verify(folder).text()
