"""LiRA: how likely is the target's confidence if the record was in, over if it was out (Carlini et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import ClassifierAttack
from sfumato.statistics.outputs import check, confidence
from sfumato.values import Exposed

LEAST_VARIANCE = 1e-6  # of a confidence: equal confidences of all shadows must not give an infinite ratio


@dataclass(frozen=True, slots=True)
class Lira(ClassifierAttack):
    """Two Gaussians per candidate, from shadows that were and were not trained on it; the score is their log ratio.

    The means are the candidate's own. So is the variance from `own_variance` shadows on that side; with fewer it is
    pooled over candidates, each about its own mean. A candidate without shadows on a side gets the
    mean and variance of all candidates there.
    """

    needs_shadows: ClassVar[bool] = True

    own_variance: int = 32  # in and out each: 64 shadows, from which on it helps in Carlini et al.

    def score(self, exposed: Exposed) -> Tensor:
        check(exposed, shadows=True)
        trained = exposed.shadow_members  # (m, n)
        shadows = confidence(exposed.shadow_logits, exposed.labels.expand(trained.shape))  # (m, n)
        target = confidence(exposed.logits, exposed.labels)  # (n,)
        return self._log_density(target, shadows, trained) - self._log_density(target, shadows, ~trained)

    def _log_density(self, target: Tensor, shadows: Tensor, side: Tensor) -> Tensor:
        counts = side.sum(0)
        of_all = shadows[side]
        overall = of_all.var(correction=0)
        mean = torch.where(counts > 0, (shadows * side).sum(0) / counts.clamp(min=1), of_all.mean())
        squares = ((shadows - mean).square() * side).sum(0)
        freedom = (counts - 1).clamp(min=0)
        pooled = squares.sum() / freedom.sum() if freedom.any() else overall
        variance = torch.where(counts >= self.own_variance, squares / freedom.clamp(min=1), pooled)
        variance = torch.where(counts > 0, variance, overall).clamp(min=LEAST_VARIANCE)
        return -((target - mean).square() / variance + variance.log() + math.log(2 * math.pi)) / 2
