"""The accuracy of a released classifier on real held-out images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import ClassifierMetric
from sfumato.statistics.answers import Answering, binomial_error, class_accuracies, confusions, held_out_logits
from sfumato.values import Reference, Score


@dataclass(frozen=True)
class Accuracy(ClassifierMetric):
    """The share of held-out images that are given their class; its error is that of a binomial share."""

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        images, logits = held_out_logits(classifier, real)
        counts = confusions(logits.argmax(1), images.labels, classes=len(images.classes))
        value = float(counts.diagonal().sum()) / len(images)
        of_class = [None if share.isnan() else float(share) for share in class_accuracies(counts)]
        details = {
            "images": len(images),
            "per_class": dict(zip(images.classes, of_class, strict=True)),
            "confusions": counts.tolist(),  # rows: true classes; columns: predicted ones
            "test_split": real.test is not None,
        }
        return Score("accuracy", value, binomial_error(value, len(images)), self.higher_is_better, details=details)
