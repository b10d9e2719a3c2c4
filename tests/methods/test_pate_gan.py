"""PATE-GAN: votes that stay informative, a student that learns the counts, and images that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfumato.errors import UsageError
from sfumato.methods.pate_gan import PATEGAN, VOTE, Student, VotingCritic
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise, ShardedSums, Teachers
from sfumato.synthesis.shard_networks import ShardNetwork
from sfumato.synthesis.teacher_guidance import CHECKPOINT_EVERY
from sfumato.values import Spec
from voting import Unanimous, expect_to_tell_halves_apart, unanimous

from toys import expect_randomness_of_its_own, halves

TINY = PATEGAN(
    start="nothing", shards=6, steps=3, batch=6, warmup=1, lessons=1, fakes=6, hidden=16, codes=4, frequencies=4
)
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
        PATEGAN(start="nothing", shards=10, steps=100, batch=30, fakes=12, hidden=32, frequencies=4, learning_rate=0.02)
    )


class Killed(Exception):
    """The run ends here."""


def pixels(method: PATEGAN, folder: Path) -> torch.Tensor:
    ledger = Ledger(Budget(1.0, 1e-4), folder / "ledger")
    private = PrivateImages.seal(halves(60), ledger, folder=folder, noise=SeededNoise(0))
    try:
        return method.fit(private, None)(torch.arange(12) % 3).pixels
    finally:
        private.close()
        ledger.close()


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The critics are new and the noise of the last steps too; but no step is asked twice."""
    method, asked, whole = replace(TINY, steps=CHECKPOINT_EVERY + 3), [], Student.directions

    def counted(student: Student, teachers: Teachers, seen: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        asked.append(len(seen))
        if len(asked) == CHECKPOINT_EVERY + 2:
            raise Killed
        return whole(student, teachers, seen, labels)

    monkeypatch.setattr(Student, "directions", counted)
    with pytest.raises(Killed):
        pixels(method, tmp_path)
    assert pixels(method, tmp_path).shape == (12, 1, 8, 8)
    assert asked == [6] * (CHECKPOINT_EVERY + 2 + 3)


def test_a_student_goes_on_from_its_state_bit_by_bit() -> None:
    draw = torch.Generator().manual_seed(0)
    model = Unanimous(lambda query: query[0][:1].sign() * VOTE)
    students = [Student(TINY, SPEC), Student(TINY, SPEC)]
    batches = [(torch.randn(6, 16, generator=draw), torch.arange(6) % 3) for _ in range(4)]
    teachers = unanimous(model, shards=5, rounds=24, noise=0.0)
    for batch in batches[:3]:
        students[0].directions(teachers, *batch)
    students[1].restore({name: value.clone() for name, value in students[0].state().items()})
    made = [student.directions(unanimous(model, shards=5, rounds=6, noise=0.0), *batches[3]) for student in students]
    assert torch.equal(*made)
    for one, other in zip(students[0].state().values(), students[1].state().values(), strict=True):
        assert torch.equal(one, other)


def test_randomness_is_its_own() -> None:
    expect_randomness_of_its_own(TINY, halves(60))


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"student_width": 0}, {"student_rate": 0.0}, {"kept_steps": 0}, {"mixture_share": 1.0}):
        with pytest.raises(UsageError):
            PATEGAN(**wrong)  # type: ignore[arg-type]
