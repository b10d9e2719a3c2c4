"""Nearest: one for fresh real data, zero for copies, more for noise, and exact."""

import dataclasses

import pytest
import torch

from metrics.digits import noise, reference
from sfumato.errors import UsageError
from sfumato.metrics.nearest import Nearest
from sfumato.statistics import distances
from sfumato.values import Images, Reference


def test_copies_raise_the_alarm():
    score = Nearest()(reference().train, reference())
    assert score.value < 0.01
    assert score.details["near_duplicates"] == len(reference().train)


def test_fresh_real_images_score_one():
    score = Nearest()(reference().test, reference())
    assert score.value == pytest.approx(1)
    assert score.details["near_duplicates"] <= 1


def test_noise_is_far_from_everything():
    score = Nearest()(noise(500), reference())
    assert score.value > 1.5
    assert score.details["near_duplicates"] == 0
    assert score.standard_error is not None
    assert 0 < score.standard_error < 0.2


def test_half_copied_is_counted():
    real = reference()
    mixed = torch.cat([real.train.pixels[:100], noise(100).pixels])
    score = Nearest()(Images(mixed, torch.zeros(200, dtype=torch.int64), real.train.classes), real)
    assert score.details["near_duplicates"] == 100


def test_chunks_give_the_exact_distances(monkeypatch):
    queries, train = noise(37).pixels, reference().train.unit().flatten(1)
    monkeypatch.setattr(distances, "CHUNK_BYTES", 5 * 4 * len(train))
    brute = torch.cdist(queries.flatten(1).double() / 255, train.double(), compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(distances.to_nearest(queries, train), brute.min(1).values / 8, atol=1e-6, rtol=1e-6)


def test_without_a_test_split_an_image_is_not_its_own_neighbour():
    score = Nearest()(reference().test, Reference(train=reference().train))
    assert not score.details["test_split"]
    assert score.details["test_to_train"][4] > 0.05
    assert 0.8 < score.value < 1.6


def test_same_seed_same_score_and_at_most_so_many():
    few = dataclasses.replace(Nearest(), most=50)
    first, second = few(noise(500), reference()), few(noise(500), reference())
    assert first == second
    assert first.details["synthetic_images"] == 50


def test_mismatch_is_refused():
    with pytest.raises(UsageError, match="shape"):
        Nearest()(Images(noise(4).pixels[..., :4], torch.zeros(4), ("a",)), reference())
