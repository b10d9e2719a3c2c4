"""Shadow MLP: a perceptron learns from shadow classifiers what logits members get (Shokri et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, judged_by_shadows, perceptron
from sfumato.values import Exposed


@dataclass(frozen=True, slots=True)
class ShadowMLP(ClassifierAttack):
    """One attack model is trained on the logits and losses of all shadows, and scores those of the target."""

    needs_shadows: ClassVar[bool] = True

    by_size: bool = False  # logits from large to small, not class by class
    most: int = 20_000  # answers to learn from
    hidden: tuple[int, ...] = (64,)
    alpha: float = 0.01  # weight of the squared weights
    iterations: int = 200
    seed: int = 0

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed, shadows=True)
        learn = perceptron(hidden=self.hidden, alpha=self.alpha, iterations=self.iterations, seed=self.seed)
        return judged_by_shadows(exposed, learn, by_size=self.by_size, most=self.most, seed=self.seed)
