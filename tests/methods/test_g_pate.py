"""G-PATE: projections, votes for bins and their bound, the bins that win, and images that follow."""

from __future__ import annotations

import math

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.g_pate import GPATE, BinGuide, BinVoter, Projections, bin_centres, bin_edges
from sfumato.privacy import ShardedSums
from sfumato.synthesis.shard_networks import ShardNetwork
from sfumato.values import Spec
from voting import Unanimous, expect_to_tell_halves_apart, unanimous

from toys import expect_randomness_of_its_own, halves

TINY = GPATE(
    start="nothing", shards=6, steps=3, batch=6, warmup=1, lessons=1, fakes=6, hidden=16, codes=4, dimensions=5
)
LENGTH, DIMENSIONS = 14, 4


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def projections() -> Projections:
    return Projections.drawn(LENGTH, DIMENSIONS, drawn())


def test_the_groups_together_are_a_rotation() -> None:
    """Projecting to each group and back, and adding up, gives the vector again, though 4 does not divide 14."""
    vector = torch.randn(LENGTH, generator=drawn(1))
    groups = torch.arange(projections().groups)
    parts = torch.stack([projections().project(vector, group) for group in groups])
    torch.testing.assert_close(projections().back(parts, groups).sum(0), vector)
    assert float(parts.norm()) == pytest.approx(float(vector.norm()), rel=1e-5)


@pytest.mark.parametrize("bins", [2, 5])
def test_a_vote_is_one_vector_as_long_as_its_bound(bins: int) -> None:
    voter = BinVoter(ShardNetwork("critic", LENGTH, 6, 3), 0.01, 0.0, 0, projections(), bins)
    said = voter.answer(voter.begin(0), (torch.randn(LENGTH, generator=drawn(2)), torch.tensor(1), torch.tensor(2)))
    assert said.shape == (DIMENSIONS * bins,)
    assert float(said.norm()) == pytest.approx(math.sqrt(DIMENSIONS * (1 - 1 / bins)), rel=1e-5)
    assert said.reshape(DIMENSIONS, bins).argmax(1).bincount().sum() == DIMENSIONS
    torch.testing.assert_close(said.reshape(DIMENSIONS, bins).sum(1), torch.zeros(DIMENSIONS))


def test_bins_are_equally_likely_and_symmetric() -> None:
    values = torch.randn(50_000, generator=drawn(3))
    shares = torch.bucketize(values, bin_edges(5)).bincount() / len(values)
    torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.01, rtol=0)
    torch.testing.assert_close(bin_centres(5), -bin_centres(5).flip(0), atol=1e-6, rtol=0)


@pytest.mark.parametrize("threshold", [None, 10.0])
def test_the_direction_is_where_the_votes_are(threshold: float | None) -> None:
    """Noise is a thousandth of the counts, so that a false alarm needs hundreds of standard deviations."""
    votes = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]) - 0.5
    teachers = unanimous(Unanimous(votes.flatten()), shards=40, rounds=6, noise=1e-3)
    guide = BinGuide(projections(), 2, threshold, drawn(4))
    made = guide.directions(teachers, torch.zeros(6, LENGTH), torch.zeros(6, dtype=torch.int64))
    groups = torch.randint(projections().groups, (6,), generator=drawn(4))
    expected = projections().back(torch.tensor([1.0, -1.0, 1.0, 1.0]).expand(6, 4), groups)
    torch.testing.assert_close(made / made.norm(dim=1, keepdim=True), unit(expected), atol=0.01, rtol=0)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_where_no_bin_is_confident_nothing_is_followed() -> None:
    """The threshold is 100 standard deviations of the noise."""
    teachers = unanimous(Unanimous(torch.zeros(DIMENSIONS * 2)), shards=40, rounds=6, noise=1.0)
    guide = BinGuide(projections(), 2, 100.0, drawn(4))
    made = guide.directions(teachers, torch.zeros(6, LENGTH), torch.zeros(6, dtype=torch.int64))
    assert not made.any()


def test_every_image_of_every_step_is_counted() -> None:
    (votes,) = TINY.plan(Spec(90, 1, 8, 8, ("a", "b", "c")))
    assert isinstance(votes, ShardedSums)
    assert votes.rounds == 3 * 6


def test_it_makes_images_that_look_like_their_class() -> None:
    expect_to_tell_halves_apart(
        GPATE(start="nothing", shards=10, steps=90, batch=30, fakes=12, hidden=32, learning_rate=0.02)
    )


def test_randomness_is_its_own() -> None:
    expect_randomness_of_its_own(TINY, halves(60))


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"aggregation": "most"}, {"bins": 1}, {"dimensions": 0}, {"threshold": -1.0}, {"shards": 0}):
        with pytest.raises(UsageError):
            GPATE(**wrong)  # type: ignore[arg-type]
