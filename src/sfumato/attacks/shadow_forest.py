"""Shadow forest: a random forest learns from shadow classifiers what logits members get (Shokri et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, forest, judged_by_shadows
from sfumato.values import Exposed


@dataclass(frozen=True, slots=True)
class ShadowForest(ClassifierAttack):
    """One attack model is trained on the logits and losses of all shadows, and scores those of the target."""

    needs_shadows: ClassVar[bool] = True

    by_size: bool = False  # logits from large to small, not class by class
    most: int = 20_000  # answers to learn from
    trees: int = 100
    leaf: int = 4  # records in a leaf, at least
    seed: int = 0

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed, shadows=True)
        learn = forest(trees=self.trees, leaf=self.leaf, seed=self.seed)
        return judged_by_shadows(exposed, learn, by_size=self.by_size, most=self.most, seed=self.seed)
