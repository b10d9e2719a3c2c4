"""Attack forest: a random forest learns on half of the candidates what logits members get."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, features, forest, judged_across_folds
from sfumato.values import Exposed


@dataclass(frozen=True, slots=True)
class AttackForest(ClassifierAttack):
    """Logits and loss of the target itself, across folds: the practice of TensorFlow Privacy, without shadows.

    The attacker knows the membership of the other folds, so this is stronger than a real one; balanced
    training sets, and fixed settings in place of a search.
    """

    folds: int = 2
    by_size: bool = True  # logits from large to small; class by class, as there, takes many more candidates
    trees: int = 100
    leaf: int = 4  # records in a leaf, at least
    seed: int = 0

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed)
        learn = forest(trees=self.trees, leaf=self.leaf, seed=self.seed)
        what = features(exposed.logits, exposed.labels, by_size=self.by_size)
        return judged_across_folds(what, exposed.members, learn, folds=self.folds, seed=self.seed)
