"""The loop of methods with teachers: as many steps as there are answers, and a killed run goes on where it was."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.privacy import Budget, Ledger, PrivateImages, SeededNoise, ShardedSums, Teachers
from sfumato.synthesis.teacher_guidance import CHECKPOINT_EVERY, Pace, teach

from toys import toy

STEPS, BATCH = CHECKPOINT_EVERY + 5, 2
ASKED = ShardedSums(shards=4, rounds=STEPS * BATCH + 1, noise_multiplier=1.0)  # one answer is left over


class Killed(Exception):
    """The run ends here."""


class Counting:
    """A teacher that answers with the number of its lessons and the mean of what it was taught."""

    answers_from = ("lessons",)

    def begin(self, number: int) -> dict[str, Tensor]:
        return {"lessons": torch.zeros(())}

    def learn(
        self, state: dict[str, Tensor], images: Tensor, labels: Tensor, present: Tensor, public: Tensor
    ) -> dict[str, Tensor]:
        return {"lessons": state["lessons"] + present.any()}

    def answer(self, state: dict[str, Tensor], query: Tensor) -> Tensor:
        return (state["lessons"] * query)[None]


class Adding:
    """What is taught: it adds up answers, draws a number for every lesson and every question, and may be killed."""

    def __init__(self, killed_at: int = STEPS + 1) -> None:
        self.total = torch.zeros((), dtype=torch.float64)
        self.steps = 0
        self.lessons = 0
        self.asked: list[Tensor] = []
        self._killed_at = killed_at
        self._draw = torch.Generator().manual_seed(0)

    def lesson(self) -> Tensor:
        self.lessons += 1
        return torch.randn(3, generator=self._draw)

    def step(self, teachers: Teachers) -> None:
        if self.steps == self._killed_at:
            raise Killed
        self.asked.append(torch.rand(BATCH, generator=self._draw))
        self.total = self.total + teachers(self.asked[-1], l2_bound=1.0).sum()
        self.steps += 1

    def state(self) -> dict[str, Tensor]:
        return {"total": self.total, "steps": torch.tensor(self.steps), "draw": self._draw.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        if state:
            self.total, self.steps = state["total"], int(state["steps"])
            self._draw.set_state(state["draw"])


def run(taught: Adding, folder: Path | None = None) -> Adding:
    ledger = Ledger(Budget(math.inf, 1e-5), None if folder is None else folder / "ledger")
    private = PrivateImages.seal(toy(40), ledger, folder=folder, noise=SeededNoise(0))
    try:
        teachers = private.teach(ASKED, purpose="test", model=Counting())
        teach(teachers, taught, Pace(batch=BATCH, warmup=3, lessons=2, records=5), what="test")
    finally:
        private.close()
        ledger.close()
    return taught


def test_every_whole_batch_of_answers_is_used() -> None:
    whole = run(Adding())
    assert whole.steps == STEPS
    assert whole.lessons == 3 + 2 * STEPS
    assert whole.total != 0


@pytest.mark.parametrize("killed_at", [2, CHECKPOINT_EVERY, CHECKPOINT_EVERY + 3])
def test_a_killed_run_asks_what_an_undisturbed_one_asks(killed_at: int, tmp_path: Path) -> None:
    whole = run(Adding())
    with pytest.raises(Killed):
        run(Adding(killed_at), tmp_path)
    resumed = run(Adding(), tmp_path)
    begun = killed_at // CHECKPOINT_EVERY * CHECKPOINT_EVERY
    assert resumed.steps == STEPS
    assert len(resumed.asked) == STEPS - begun
    for mine, theirs in zip(resumed.asked, whole.asked[begun:], strict=True):
        assert torch.equal(mine, theirs)


def test_too_few_answers_for_a_batch_are_refused() -> None:
    private = PrivateImages.seal(toy(40), Ledger(Budget(math.inf, 1e-5)), noise=SeededNoise(0))
    teachers = private.teach(ASKED, purpose="test", model=Counting())
    pace = Pace(batch=50, warmup=0, lessons=1, records=5)
    with pytest.raises(UsageError, match="batch of 50"):
        teach(teachers, Adding(), pace, what="test")
