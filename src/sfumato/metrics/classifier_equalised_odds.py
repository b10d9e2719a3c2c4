"""Does a released classifier treat groups of real images alike (equalised odds)?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.contracts import ClassifierMetric
from sfumato.statistics import groups as by_group
from sfumato.statistics.answers import Answering
from sfumato.statistics.grouped_images import DEFINITION, Judged, judged_by_group
from sfumato.values import Reference, Score

FIGURES = (
    Judged("classifier-equalised-odds", by_group.equalised_odds),
    Judged("demographic-parity", by_group.demographic_parity),
)


@dataclass(frozen=True)
class ClassifierEqualisedOdds(ClassifierMetric):
    """Equalised odds difference (Hardt, Price and Srebro 2016) on real held-out images; 0: equal rates in all groups.

    A largest gap is above 0 by chance alone, and more so for smaller groups: `by_chance` is its mean when groups are
    shuffled among the images of each class.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = False

    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        score = judged_by_group(classifier, real, FIGURES, resamples=self.resamples, seed=self.seed)
        return replace(score, details={"definition": DEFINITION, **score.details})
