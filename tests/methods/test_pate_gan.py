"""PATE-GAN: votes that stay informative, a student that learns the counts, and images that follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.pate_gan import PATEGAN, VOTE, Student, VotingCritic
from sfumato.privacy import Budget, Ledger, Noise, PrivateImages, SeededNoise, ShardedSums
from sfumato.synthesis.shard_networks import ShardNetwork
from sfumato.synthesis.teacher_guidance import CHECKPOINT_EVERY
from sfumato.values import Spec

from toys import expect_randomness_of_its_own, halves
from voting import Unanimous, expect_to_tell_halves_apart, unanimous

TINY = PATEGAN(shards=6, steps=3, batch=6, warmup=1, lessons=1, fakes=6, hidden=16, codes=4, frequencies=4)
SPEC = Spec(90, 1, 8, 8, ("a", "b", "c"))


def test_votes_are_split_among_generated_images() -> None:
    """Records are far away: every generated image is known as such, and yet about half of the votes are for it."""
    critic = VotingCritic(ShardNetwork("critic", 5, 8, 2), 0.02, 0.0, 0)
    draw, state = torch.Generator().manual_seed(0), critic.begin(0)
    fake, labels = torch.randn(200, 5, generator=draw), torch.arange(200) % 2
    records = 10 + torch.randn(20, 1, 1, 5, generator=draw)
    for _ in range(60):
        state = critic.learn(state, records, labels[:20], torch.ones(20, dtype=torch.bool), (fake, labels))
    assert (critic.score(state, fake, labels) < 0).float().mean() > 0.95
    votes = torch.cat([critic.answer(state, (z, label)) for z, label in zip(fake, labels, strict=True)])
    assert set(votes.tolist()) == {-VOTE, VOTE}
    assert abs(float(votes.mean())) < 0.2
    assert float(critic.answer(state, (records[0].flatten(), labels[0]))) == VOTE


def test_the_student_learns_the_counts_and_points_along_them() -> None:
    """All vote for images that are bright in their first coordinate, with noise of a hundredth of the votes."""
    teachers = unanimous(Unanimous(lambda query: query[0][:1].sign() * VOTE), shards=50, rounds=600, noise=0.5)
    student, draw = Student(TINY, SPEC), torch.Generator().manual_seed(0)
    for _ in range(10):
        seen, labels = torch.randn(60, 16, generator=draw), torch.arange(60) % 3
        directions = student.directions(teachers, seen, labels)
    sizes = directions.mean(0).abs()
    assert float(directions.mean(0)[0]) > 3 * float(sizes[1:].max())


def test_every_image_of_every_step_is_counted() -> None:
    (votes,) = TINY.plan(SPEC)
    assert isinstance(votes, ShardedSums)
    assert votes.rounds == 3 * 6


def test_it_makes_images_that_look_like_their_class() -> None:
    expect_to_tell_halves_apart(
        PATEGAN(shards=10, steps=100, batch=30, fakes=12, hidden=32, frequencies=4, learning_rate=0.02)
    )


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Students of the killed run and of the resumed one learn from the same counts: the images are the same."""
    method = PATEGAN(
        shards=6, steps=CHECKPOINT_EVERY + 3, batch=6, warmup=1, lessons=1, fakes=6, hidden=16, codes=4, frequencies=4
    )
    made = {}
    for kind in ("whole", "killed"):
        folder, budget = tmp_path / kind, Budget(1.0, 1e-4)
        folder.mkdir()
        if kind == "killed":
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Student, "directions", killed_after(CHECKPOINT_EVERY))
                fit(method, folder, Ledger(budget))
        images = fit(method, folder, Ledger(budget))
        made[kind] = images
    assert made["whole"].shape == made["killed"].shape
    assert np.isfinite(made["killed"]).all()
