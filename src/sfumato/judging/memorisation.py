"""Memorisation over the time of a training: accuracy, loss, attack and membership probability at checkpoints; lab side.

Everything here is computed from real records outside of any ledger: it is lab material.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.judging.exposure import expose_trained, membership_probability
from sfumato.statistics.outputs import log_probability
from sfumato.statistics.roc import area
from sfumato.values import Images

OVER_FIT = 1.05  # of the least validation loss: above this a training is past its over-fit point


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known of a network at one moment of its training."""

    done: float  # the fraction of the training
    train_accuracy: float
    test_accuracy: float
    train_loss: float  # mean cross-entropy
    test_loss: float
    auc: float  # of the attack by loss threshold, members against others
    auc_error: float
    membership: tuple[float, ...]  # the membership probability of each chosen record, in their order


@dataclass(frozen=True, slots=True)
class Marks:
    """Numbers of checkpoints, from 0; None where there is none."""

    early_stop: int | None  # the least validation loss
    over_fit: int | None  # the first after it whose loss exceeds the least by 5 %


class MemorisationTracker:
    """A callback of a training: called with the fraction done and the network, it keeps a checkpoint.

    `members` are training records, `others` are records that are not trained on; `chosen` are numbers of members. The
    network is judged in eval mode and gets back the mode that it had.
    """

    def __init__(self, members: Images, others: Images, *, chosen: Sequence[int] = ()) -> None:
        if min(len(members), len(others)) < 4:
            raise DataError(f"Expected 4 or more members and others, got {len(members)} and {len(others)}.")
        if len(members.classes) < 2:
            raise NotApplicable("Expected at least 2 classes, got one: its loss is always 0.")
        for number in chosen:
            if not 0 <= number < len(members):
                raise UsageError(f"Expected chosen records from 0 to {len(members) - 1}, got {number}.")
        self._members, self._others = members, others
        self._chosen = torch.tensor(chosen, dtype=torch.int64)
        self.checkpoints: list[Checkpoint] = []

    def __call__(self, done: float, network: nn.Module) -> None:
        training = network.training
        exposed = expose_trained(network.eval(), self._members, self._others)
        network.train(training)
        if not exposed.logits.isfinite().all():  # a training that diverged: it may go on, and the marks see it
            self.checkpoints.append(_diverged(done, len(self._chosen)))
            return
        inside = exposed.members
        loss = -log_probability(exposed.logits, exposed.labels)
        right = (exposed.logits.argmax(1) == exposed.labels).double()
        auc, error = area(-loss[inside], -loss[~inside])
        probabilities: list[float] = membership_probability(exposed)[self._chosen].tolist()  # members come first
        self.checkpoints.append(
            Checkpoint(
                done=done,
                train_accuracy=_mean(right[inside]),
                test_accuracy=_mean(right[~inside]),
                train_loss=_mean(loss[inside]),
                test_loss=_mean(loss[~inside]),
                auc=auc,
                auc_error=error,
                membership=tuple(probabilities),
            )
        )

    def marks(self) -> Marks:
        """Early stop and over-fit point by the loss on the others."""
        return marks([checkpoint.test_loss for checkpoint in self.checkpoints])


def _diverged(done: float, chosen: int) -> Checkpoint:
    nothing = math.nan
    return Checkpoint(done, nothing, nothing, nothing, nothing, nothing, nothing, (nothing,) * chosen)


def marks(validation_losses: Sequence[float]) -> Marks:
    """Early stop is the least validation loss; over-fit the first checkpoint after it that exceeds it by 5 %.

    A loss that is no number counts as infinite: the training has diverged.
    """
    losses = [math.inf if math.isnan(loss) else loss for loss in validation_losses]
    if not losses or math.isinf(min(losses)):
        return Marks(None, None)
    early_stop = losses.index(min(losses))
    later = (number for number in range(early_stop + 1, len(losses)) if losses[number] > OVER_FIT * losses[early_stop])
    return Marks(early_stop, next(later, None))


def _mean(values: Tensor) -> float:
    return float(values.mean())
