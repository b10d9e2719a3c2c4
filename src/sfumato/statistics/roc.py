"""Evaluate an attack's scores: the ROC curve, its area, TPR at low FPR, and a lower bound on epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from sfumato.errors import DataError
from sfumato.statistics.intervals import binomial_bounds, rate_bounds

CONFIDENCE = (
    0.99  # of a bound on epsilon; several attacks are tried on a release, so 95 % would give too many false findings
)
INTERVAL = 0.95  # of the rates
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rate:
    """The true positive rate at a false positive rate (`false_alarms`), with its Clopper-Pearson interval."""

    false_alarms: float
    value: float
    low: float
    high: float
    measurable: bool  # whether there are enough others for one false positive at that rate


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on epsilon: with that confidence, no smaller one could let the attacker do so well."""

    epsilon: float
    confidence: float
    delta: float
    largest: float  # what a perfect attacker would have shown on as many candidates
    direction: str  # "members" found, or "others" ruled out


def area(members: Tensor, others: Tensor) -> tuple[float, float]:
    """The area under the curve, ties as halves, and its standard error (DeLong, DeLong and Clarke-Pearson 1988)."""
    ins, outs = _arrays(members, others)
    ranks = stats.rankdata(np.concatenate([ins, outs]))
    # how much of the other side each score beats: its rank among all less its rank on its own side
    over = (ranks[: len(ins)] - stats.rankdata(ins)) / len(outs)
    under = 1 - (ranks[len(ins) :] - stats.rankdata(outs)) / len(ins)
    variance = over.var(ddof=1) / len(ins) + under.var(ddof=1) / len(outs)
    return float(over.mean()), math.sqrt(variance)


def curve(members: Tensor, others: Tensor) -> tuple[Floats, Floats]:
    """False and true positive rates from the highest threshold to the lowest; a score above it means member."""
    ins, outs = _arrays(members, others)
    thresholds = np.unique(np.concatenate([ins, outs]))[::-1]
    false_positives, true_positives = _above(outs, thresholds) / len(outs), _above(ins, thresholds) / len(ins)
    return np.append(false_positives, 1.0), np.append(true_positives, 1.0)


def rate_at(members: Tensor, others: Tensor, *, false_alarms: float) -> Rate:
    """The true positive rate at a threshold that at most that share of the others passes."""
    ins, outs = _arrays(members, others)
    allowed = math.floor(false_alarms * len(outs) + 1e-9)
    threshold = np.sort(outs)[::-1][min(allowed, len(outs) - 1)]
    found = int((ins > threshold).sum())
    tail = (1 - INTERVAL) / 2
    low, high = rate_bounds(found, len(ins), error=tail)
    return Rate(false_alarms, found / len(ins), low, high, measurable=allowed > 0)


def epsilon_bound(
    members: Tensor, others: Tensor, *, delta: float, confidence: float = CONFIDENCE, seed: int = 0
) -> Bound:
    """A lower bound on epsilon from the best threshold, chosen on one half of the scores and evaluated on the other.

    Under (epsilon, delta) a test has TPR <= e^epsilon FPR + delta, and so has its opposite with TNR and FNR
    (Kairouz, Oh and Viswanath 2015; Nasr et al. 2021). Candidates of one release count as independent trials,
    which they are only approximately (Steinke, Nasr and Jagielski 2023): a warning, not a proof.
    """
    draw = torch.Generator().manual_seed(seed)
    (choose_in, judge_in), (choose_out, judge_out) = (_halves(side, draw) for side in _arrays(members, others))
    tail = (1 - confidence) / 2
    thresholds = np.unique(np.concatenate([choose_in, choose_out]))
    chosen = _epsilons(choose_in, choose_out, thresholds, delta=delta, tail=tail)  # (2, t)
    direction, best = np.unravel_index(int(chosen.argmax()), chosen.shape)
    judged = _epsilons(judge_in, judge_out, thresholds[best : best + 1], delta=delta, tail=tail)[direction, 0]
    perfect = _epsilons(np.ones(len(judge_in)), np.zeros(len(judge_out)), np.array([0.5]), delta=delta, tail=tail)
    return Bound(
        max(0.0, float(judged)), confidence, delta, max(0.0, float(perfect.max())), ("members", "others")[direction]
    )


def _epsilons(ins: Floats, outs: Floats, thresholds: Floats, *, delta: float, tail: float) -> Floats:
    """The bound at each threshold, by members found (first row) and by others ruled out (second row)."""
    true_positives, _ = binomial_bounds(_above(ins, thresholds), len(ins), tail)
    _, false_positives = binomial_bounds(_above(outs, thresholds), len(outs), tail)
    tops = np.stack([true_positives, 1 - false_positives]) - delta
    bottoms = np.stack([false_positives, 1 - true_positives])
    bounds: Floats = np.log(np.clip(tops, 1e-300, None)) - np.log(np.clip(bottoms, 1e-300, None))
    return bounds


def _above(scores: Floats, thresholds: Floats) -> NDArray[np.int64]:
    """How many scores are above each threshold."""
    counts: NDArray[np.int64] = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="right")
    return counts


def _halves(scores: Floats, draw: torch.Generator) -> tuple[Floats, Floats]:
    order = torch.randperm(len(scores), generator=draw).numpy()
    return scores[order[: len(scores) // 2]], scores[order[len(scores) // 2 :]]


def _arrays(members: Tensor, others: Tensor) -> tuple[Floats, Floats]:
    if min(len(members), len(others)) < 4:
        raise DataError(f"Expected scores of 4 or more members and others, got {len(members)} and {len(others)}.")
    ins, outs = (side.detach().double().numpy() for side in (members, others))
    if np.isnan(ins).any() or np.isnan(outs).any():
        raise DataError("Expected a number as the score of every candidate, got NaN.")
    return ins, outs
