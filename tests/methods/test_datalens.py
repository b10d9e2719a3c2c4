"""DataLens: signs of the largest coordinates, their bound, the threshold, and images that follow."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import vmap

from sfumato.errors import UsageError
from sfumato.methods.datalens import DataLens, SignGuide, largest_signs
from sfumato.privacy import Budget, GaussianSum, Ledger, ShardedSums
from sfumato.values import Spec
from voting import Unanimous, expect_to_tell_halves_apart, unanimous

from toys import expect_randomness_of_its_own, halves

TINY = DataLens(start="nothing", shards=6, steps=3, batch=6, warmup=1, lessons=1, fakes=6, hidden=16, codes=4, kept=5)


def test_the_largest_coordinates_are_kept_as_signs() -> None:
    vector = torch.tensor([0.1, -3.0, 2.0, 0.0, -0.2])
    assert largest_signs(vector, 2).tolist() == [0, -1, 1, 0, 0]
    assert vmap(lambda v: largest_signs(v, 3))(vector.repeat(2, 1)).tolist() == [[0, -1, 1, 0, -1]] * 2
    assert largest_signs(torch.zeros(4), 2).tolist() == [0, 0, 0, 0]


def test_what_all_critics_say_arrives_whole_within_the_bound() -> None:
    """The bound of an answer is its length: nothing of it is cut, nor could it be longer."""
    said = largest_signs(torch.randn(12, generator=torch.Generator().manual_seed(0)), 4)
    assert float(said.norm()) == math.sqrt(4)
    teachers = unanimous(Unanimous(said), shards=5, rounds=3, noise=1e-6)
    made = SignGuide(4, None).directions(teachers, torch.zeros(3, 12), torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(made, (5 * said).expand(3, 12), atol=1e-2, rtol=0)


def test_sums_within_the_noise_count_as_nothing() -> None:
    """Noise 1/100 of the threshold: a false alarm needs 100 standard deviations."""
    said = torch.tensor([1.0, -1.0, 0.0, 0.0])
    teachers = unanimous(Unanimous(said), shards=50, rounds=2, noise=0.01)
    made = SignGuide(2, 100.0).directions(teachers, torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))
    assert made.tolist() == [said.tolist()] * 2


def test_every_image_of_every_step_is_counted() -> None:
    spec = Spec(90, 1, 8, 8, ("a", "b", "c"))
    (votes,) = TINY.plan(spec)
    assert isinstance(votes, ShardedSums)
    assert votes.rounds == 3 * 6
    *mixtures, votes = DataLens(steps=4, batch=5, start="painted").plan(spec)
    assert votes.rounds == 20
    assert all(isinstance(asked, GaussianSum) for asked in mixtures)
    assert sum(asked.share for asked in (*mixtures, votes)) == pytest.approx(1)
    Ledger(Budget(1.0, 1e-5)).calibrate(*mixtures, votes)


def test_it_makes_images_that_look_like_their_class() -> None:
    expect_to_tell_halves_apart(
        DataLens(start="nothing", shards=10, steps=60, batch=30, fakes=12, hidden=32, learning_rate=0.02)
    )


def test_randomness_is_its_own() -> None:
    expect_randomness_of_its_own(TINY, halves(60))


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"follow": "noise"}, {"kept": 0}, {"threshold": -1.0}, {"start": "drawn"}, {"batch": 0}):
        with pytest.raises(UsageError):
            DataLens(**wrong)  # type: ignore[arg-type]
