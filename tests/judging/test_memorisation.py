"""Memorisation over training time: figures by hand, marks by hand, and a record that comes to be memorised."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from judging.released import meaningless
from metrics.answering import numbered
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.memorisation import Marks, MemorisationTracker, marks
from sfumato.training.student import Schedule, train
from sfumato.values import Images


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.0, 1.0, 1.04, 1.06, 0.999], Marks(4, None)),  # the least comes last: no over-fit point after it
        ([2.0, 1.0, 1.04, 1.06, 3.0], Marks(1, 3)),
        ([2.0, 1.0, 1.05], Marks(1, None)),  # exceeds means more than 5 %
        ([1.0, 1.0, 1.2], Marks(0, 2)),  # of equals the first
        ([0.0, 0.0, 1e-9], Marks(0, 2)),
        ([3.0], Marks(0, None)),
        ([], Marks(None, None)),
        ([math.inf, math.nan], Marks(None, None)),
        ([1.0, math.nan], Marks(0, 1)),  # it has diverged
        ([9.0, 1.0, 0.5, 0.6, 0.7], Marks(2, 3)),
    ],
)
def test_marks_by_hand(losses: list[float], expected: Marks) -> None:
    assert marks(losses) == expected


class LookedUp(nn.Module):
    """A network whose logits are a table, by the number in an image's pixels."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        assert not self.training
        return self.logits[(255 * images[:, 0, 0, 0]).round().long()]


def sides() -> tuple[Images, Images]:
    """Members 0 to 3 and others 4 to 7, all of class a of two."""
    every = numbered([0] * 8, ("a", "b")).train
    return every.rows(torch.arange(4)), every.rows(torch.arange(4, 8))


def test_a_checkpoint_by_hand() -> None:
    """Losses of 1e-6 (three members, one other), 1e-3 (one member) and 2 (three others)."""
    losses = torch.tensor([1e-6, 1e-6, 1e-6, 1e-3, 1e-6, 2.0, 2.0, 2.0], dtype=torch.float64)
    logits = torch.stack([-torch.expm1(losses).log(), torch.zeros(8)], 1)  # log(p / (1 - p)) and 0
    tracker = MemorisationTracker(*sides(), chosen=(0, 3))
    tracker(0.25, LookedUp(logits).train())
    (found,) = tracker.checkpoints
    assert found.done == 0.25
    assert (found.train_accuracy, found.test_accuracy) == (1.0, 0.25)
    assert found.train_loss == pytest.approx((3e-6 + 1e-3) / 4)
    assert found.test_loss == pytest.approx((1e-6 + 6.0) / 4)
    # each of the three members ties with one other and beats three; the fourth loses to one and beats three
    assert found.auc == pytest.approx((3 * 3.5 + 3) / 16)
    assert found.membership == pytest.approx(((3 / 4) / (3 / 4 + 1 / 4), 1.0))


def test_the_network_gets_its_mode_back() -> None:
    network = LookedUp(torch.zeros(8, 2))
    for mode in (True, False):
        MemorisationTracker(*sides())(1.0, network.train(mode))
        assert network.training is mode


def test_a_training_that_diverged_may_go_on_and_is_marked() -> None:
    tracker = MemorisationTracker(*sides(), chosen=(1,))
    tracker(0.5, LookedUp(torch.zeros(8, 2)))
    tracker(1.0, LookedUp(torch.full((8, 2), torch.nan)))
    assert math.isnan(tracker.checkpoints[1].test_loss)
    assert math.isnan(tracker.checkpoints[1].membership[0])
    assert tracker.marks() == Marks(0, 1)


def test_records_with_random_labels_come_to_be_memorised() -> None:
    """A callback of the training of classifiers; everything is seeded."""
    real = meaningless()
    assert real.test is not None
    tracker = MemorisationTracker(real.train, real.test, chosen=range(len(real.train)))
    schedule = Schedule(arch="small-cnn", loss="labels", batch=32, least_batches=1, max_epochs=20)
    train(real.train, schedule, seed=0, what="to be watched", callback=tracker, checkpoints=4)
    first, last = tracker.checkpoints[0], tracker.checkpoints[-1]
    assert [checkpoint.done for checkpoint in tracker.checkpoints] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.01)
    assert last.train_accuracy > 0.9 > first.train_accuracy
    assert last.test_accuracy < 0.25
    assert last.auc > max(0.9, first.auc)
    assert sum(last.membership) / len(last.membership) > max(0.8, sum(first.membership) / len(first.membership))
    assert tracker.marks().over_fit is not None, "labels that say nothing are over-fitted to"


def test_what_cannot_be_tracked_is_refused() -> None:
    members, others = sides()
    with pytest.raises(UsageError, match="Expected chosen records from 0 to 3, got 4"):
        MemorisationTracker(members, others, chosen=(4,))
    with pytest.raises(DataError, match="got 3 and 4"):
        MemorisationTracker(members.rows(torch.arange(3)), others)
    alone = numbered([0] * 8, ("a",)).train
    with pytest.raises(NotApplicable, match="at least 2 classes"):
        MemorisationTracker(alone, alone)
