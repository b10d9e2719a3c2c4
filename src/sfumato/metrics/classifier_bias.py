"""Does a released classifier read the class from colour, or from a group? (Model bias, Wang et al. 2020.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import ClassifierMetric
from sfumato.statistics.answers import Answering, logits_of
from sfumato.statistics.groups import bootstrap_errors, error_of_mean
from sfumato.statistics.predicted_classes import BiasTest
from sfumato.values import Reference, Score


@dataclass(frozen=True)
class ClassifierBias(ClassifierMetric):
    """How unevenly views or groups are spread over the predicted classes: 0 where they are spread alike, at most .5.

    Without groups, every held-out image in colour is judged twice, as it is and in grey. With groups, a classifier that
    is always right has the bias of the labels, which the details give.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = False

    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        tested = BiasTest.of(real)
        classes = len(tested.classes)
        views = [logits_of(classifier, pixels, classes=classes).argmax(1) for pixels in tested.views]
        answers = torch.stack(views)[None]  # (1, v, n)

        def bias(rows: Tensor) -> Tensor:
            return tested.biases(answers, rows)

        draw = torch.Generator().manual_seed(self.seed)
        (resampled,) = bootstrap_errors(bias, len(tested.labels), resamples=self.resamples, draw=draw)
        value = tested.biases(answers)
        details = {**tested.details({"classifier": answers}), "test_split": real.test is not None}
        error = error_of_mean(value, resampled)
        return Score("classifier-bias", float(value), error, self.higher_is_better, (self.seed,), details)
