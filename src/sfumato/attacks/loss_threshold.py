"""Loss threshold: what a classifier was trained on has a smaller loss (Yeom et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, log_probability
from sfumato.values import Exposed


@dataclass(frozen=True, slots=True)
class LossThreshold(ClassifierAttack):
    """The score is minus the cross-entropy loss of the true class."""

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed)
        return log_probability(exposed.logits, exposed.labels)
