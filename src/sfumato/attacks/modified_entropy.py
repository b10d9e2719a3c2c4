"""Modified entropy: a classifier is surer, and right, about what it was trained on (Song and Mittal 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, modified_entropy
from sfumato.values import Exposed


@dataclass(frozen=True, slots=True)
class ModifiedEntropy(ClassifierAttack):
    """The score is minus -(1 - p_y) log p_y - sum over c != y of p_c log(1 - p_c)."""

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed)
        return -modified_entropy(exposed.logits, exposed.labels)
