"""The lowest accuracy of a released classifier on the real held-out images of one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.contracts import ClassifierMetric
from sfumato.statistics.answers import Answering, binomial_error, class_accuracies, confusions, held_out_logits
from sfumato.values import Reference, Score


@dataclass(frozen=True)
class WorstClass(ClassifierMetric):
    """The accuracy on the class that does worst; its error is as if that class had been chosen beforehand.

    Classes without held-out images are left out. Of many classes of equal accuracy the worst seems worse by chance.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = True

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        images, logits = held_out_logits(classifier, real)
        counts = confusions(logits.argmax(1), images.labels, classes=len(images.classes))
        shares = class_accuracies(counts)
        worst = int(shares.nan_to_num(2.0).argmin())  # above every accuracy: a class without images is not the worst
        value, count = float(shares[worst]), int(counts[worst].sum())
        details = {
            "worst_class": images.classes[worst],
            "images_of_it": count,
            "left_out": [
                f"class {name}: no images" for name, share in zip(images.classes, shares, strict=True) if share.isnan()
            ],
            "test_split": real.test is not None,
        }
        return Score("worst-class", value, binomial_error(value, count), self.higher_is_better, details=details)
