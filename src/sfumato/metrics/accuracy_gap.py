"""How much more accurate is a released classifier on one group of real images than on another?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import ClassifierMetric
from sfumato.statistics import groups as by_group
from sfumato.statistics.answers import Answering
from sfumato.statistics.grouped_images import Judged, judged_by_group
from sfumato.values import Reference, Score

FIGURES = (Judged("accuracy-gap", by_group.accuracy_gap), Judged("worst-group-accuracy", by_group.worst_accuracy, True))


@dataclass(frozen=True)
class AccuracyGap(ClassifierMetric):
    """The largest accuracy of a group minus the smallest, on real held-out images; 0: equal in all groups.

    A gap is above 0 by chance alone, and more so for smaller groups: `by_chance` is its mean when groups are shuffled
    among the images of each class.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = False

    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        return judged_by_group(classifier, real, FIGURES, resamples=self.resamples, seed=self.seed)
