"""One number for accuracy, privacy and fairness together: their harmonic mean, with the formula that was used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from sfumato.errors import UsageError
from sfumato.lab.folder import Lab
from sfumato.lab.scores import Entry, add_scores, read_scores
from sfumato.values import Score

Variant = Literal["bounded", "raw"]
FORMULAS: dict[Variant, str] = {
    "bounded": "HS = 3 / (1/A + 1/P + 1/F), A = accuracy, P = 2 (1 - max(AUC, 0.5)), F = 1 - 2 bias",
    "raw": "HS = 3 / (1/A + 1/P + 1/F), A = accuracy, P = 1 - AUC, F = 1 - bias",
}
_SLOPES: dict[Variant, tuple[float, float, float]] = {"bounded": (1, 2, 2), "raw": (1, 1, 1)}
# Accuracy and bias of a release of images (by classifiers trained on it), and of a released classifier.
_TERMS = (("gen2real", "model-bias"), ("accuracy", "classifier-bias"))
_RANGES = {"accuracy": 1.0, "AUC": 1.0, "bias": 0.5}


def harmonic_score(accuracy: Score, auc: Score, bias: Score, *, variant: Variant = "bounded") -> Score:
    """The harmonic mean of accuracy, privacy (from an attacker's AUC) and fairness (from model bias); 0 if one is 0.

    The error is that of the three by the delta method, as if they were independent. An AUC below 0.5 counts as
    0.5, but its error counts in full.
    """
    given = dict(zip(_RANGES, (accuracy, auc, bias), strict=True))
    _check(given, variant)
    terms = _terms(accuracy.value, auc.value, bias.value, variant)
    return Score(
        name="harmonic-score",
        value=_harmonic(*terms),
        standard_error=_error(terms, [score.standard_error for score in given.values()], variant),
        higher_is_better=True,
        details={
            "variant": variant,
            "formula": FORMULAS[variant],
            "terms": dict(zip(("A", "P", "F"), terms, strict=True)),
            "of": {name: {"score": score.name, "value": score.value} for name, score in given.items()},
        },
    )


def add_harmonic_score(lab: Lab) -> Score | None:
    """Put the score into the lab's table, once accuracy, attacks and bias are all in it."""
    rows = [row for row in read_scores(lab.folder)["scores"] if row["value"] is not None]
    named = {row["score"]: row for row in rows}
    attacks = [row for row in rows if row["score"].startswith("attack-") and not row["part_of"]]
    known = next((terms for terms in _TERMS if set(terms) <= set(named)), None)
    if not attacks or known is None:
        return None
    accuracy, bias = (named[term] for term in known)
    strongest = max(attacks, key=lambda row: float(row["value"]))
    score = harmonic_score(*(_as_score(row) for row in (accuracy, strongest, bias)))
    entry = Entry(score, "harmonic-score", "all", {"variant": score.details["variant"]})
    add_scores(lab, [entry], judged_on=accuracy["judged_on"], left_out={})
    return score


def _as_score(row: Mapping[str, Any]) -> Score:
    return Score(row["score"], row["value"], row["standard_error"], row["better"] == "higher")


def _check(given: dict[str, Score], variant: str) -> None:
    if variant not in FORMULAS:
        raise UsageError(f"Expected the variant bounded or raw, got {variant!r}.")
    for name, score in given.items():
        if not 0 <= score.value <= _RANGES[name]:
            raise UsageError(f"Expected {name} from 0 to {_RANGES[name]:g}, got {score.value:g}.")


def _terms(accuracy: float, auc: float, bias: float, variant: Variant) -> tuple[float, float, float]:
    if variant == "raw":
        return accuracy, 1 - auc, 1 - bias
    return accuracy, 2 * (1 - max(auc, 0.5)), 1 - 2 * bias


def _harmonic(a: float, p: float, f: float) -> float:
    return 3 * a * p * f / (a * p + a * f + p * f) if min(a, p, f) > 0 else 0.0


def _error(terms: tuple[float, float, float], errors: list[float | None], variant: Variant) -> float | None:
    a, p, f = terms
    pairs = a * p + a * f + p * f
    if None in errors or not pairs:  # with two terms at 0 the score has no slope
        return None
    slopes = [3 * (product / pairs) ** 2 for product in (p * f, a * f, a * p)]
    parts = zip(slopes, _SLOPES[variant], errors, strict=True)
    return math.hypot(*(slope * inner * (error or 0.0) for slope, inner, error in parts))
