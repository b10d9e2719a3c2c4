"""The loop that methods with teachers share: lessons, one batch of questions, one step on the noisy answers, and again.

What learns from the answers decides what it asks and what an answer means: a direction for a generator, votes that
train a discriminator, or something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from sfumato.errors import UsageError, expect_within
from sfumato.privacy import Teachers
from sfumato.progress import track

CHECKPOINT_EVERY = 16  # steps


class Taught(Protocol):
    """What learns from teachers: it sees noisy answers alone, and all its randomness is its own."""

    def lesson(self) -> Any:
        """What all teachers learn from next, beside their records: generated images, say."""

    def step(self, teachers: Teachers) -> None:
        """Ask the teachers once, about `batch` queries, and learn from what they answer."""

    def state(self) -> dict[str, Tensor]:
        """All numbers that the next step depends on."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from such numbers, bit by bit; from none, begin."""


@dataclass(frozen=True)
class Pace:
    """How much teachers learn and how much they are asked: public."""

    batch: int  # queries of a step
    warmup: int  # lessons before the first step
    lessons: int  # before each step
    records: int  # of each shard, in a lesson

    def __post_init__(self) -> None:
        expect_within(self, batch=(1, 10**6), warmup=(0, 10**6), lessons=(1, 10**4), records=(1, 10**6))


def teach(teachers: Teachers, taught: Taught, pace: Pace, *, what: str) -> None:
    """All steps that the teachers' answers allow; a killed run goes on from its checkpoint with teachers trained anew.

    The images of lessons and questions come from the same random numbers. The state is restored after the warm-up, so
    that a resumed run asks what the killed one asked.
    """
    steps = teachers.rounds // pace.batch
    if not steps:
        raise UsageError(
            f"Expected answers for a batch of {pace.batch}, got {teachers.rounds}.", fix="ask for more steps"
        )
    done, state = teachers.resumed()
    taught.restore(state)
    warmup = pace.warmup if done < steps else 0
    for _ in track(range(warmup), what=f"{what}: teachers", total=warmup):
        teachers.learn(taught.lesson(), records=pace.records)
    taught.restore(state)
    for step in track(range(done, steps), what=what, total=steps - done):
        for _ in range(pace.lessons):
            teachers.learn(taught.lesson(), records=pace.records)
        taught.step(teachers)
        if (step + 1) % CHECKPOINT_EVERY == 0:
            teachers.checkpoint(taught.state())
