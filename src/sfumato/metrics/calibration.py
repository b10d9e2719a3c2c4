"""Is a released classifier as often right as it is sure? Expected calibration error on real held-out images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import ClassifierMetric
from sfumato.statistics.answers import (
    Answering,
    brier_scores,
    equal_mass_calibration_error,
    held_out_logits,
    negative_log_likelihoods,
)
from sfumato.statistics.groups import bootstrap_errors
from sfumato.values import Reference, Score


@dataclass(frozen=True)
class Calibration(ClassifierMetric):
    """Expected calibration error in 15 bins of equally many images; negative log-likelihood and Brier score beside it.

    Errors are by bootstrap, and of the means by their spread. The calibration error is above 0 by chance alone, more so
    for fewer images.
    """

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = False

    bins: int = 15
    resamples: int = 200  # of the bootstrap
    seed: int = 0

    def __call__(self, classifier: Answering, real: Reference) -> Score:
        images, logits = held_out_logits(classifier, real)
        sure, answers = logits.double().softmax(1).max(1)
        right = answers == images.labels

        def error(rows: Tensor) -> Tensor:
            return equal_mass_calibration_error(sure[rows], right[rows], bins=self.bins)[None]

        draw = torch.Generator().manual_seed(self.seed)
        (resampled,) = bootstrap_errors(error, len(images), resamples=self.resamples, draw=draw)
        return Score(
            "calibration",
            float(error(torch.arange(len(images)))),
            resampled,
            self.higher_is_better,
            (self.seed,),
            {
                "bins": min(self.bins, len(images)),
                "mean_confidence": float(sure.mean()),
                "accuracy": float(right.double().mean()),
                "test_split": real.test is not None,
            },
            (
                _mean("negative-log-likelihood", negative_log_likelihoods(logits, images.labels)),
                _mean("brier-score", brier_scores(logits, images.labels)),
            ),
        )


def _mean(name: str, values: Tensor) -> Score:
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None
    return Score(name, float(values.mean()), error, higher_is_better=False)
