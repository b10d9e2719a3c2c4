"""The claims of the study of generalisation, each with a verdict that is computed from what was measured.

A verdict is about a difference in the claimed direction, averaged over what is compared and then over seeds. It is
supported where the difference is larger than 2 standard errors over seeds, contradicted where it is smaller than minus
2, and else not seen. With few seeds the error itself is uncertain, so a verdict describes these runs and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sfumato.experiments.study_data import plain_name
from sfumato.experiments.study_format import BASELINE, EVERYTHING, Condition, Kind
from sfumato.experiments.study_measures import before_overfitting, mean_and_error

CLAIMS = {
    1: "techniques raise the accuracy of private training",
    2: "records are memorised before the over-fitting point, with the techniques too",
    3: "techniques can increase model bias, with and without privacy",
    4: "more data bias (75 to 95 %) lowers accuracy and raises attack AUC and model bias",
    5: "the same on CelebA: techniques raise accuracy and can increase bias",
    6: "removing outliers lowers accuracy and raises model bias",
    7: "DP-SAT improves the balance (harmonic score) over DP-SGD",
}
RECIPES = {1: 1, 2: 2, 3: 1, 4: 3, 5: 1, 6: 5, 7: 1}  # the figure that measures each
ERRORS = 2.0  # standard errors
FACES = "celeba"
ARMS = {True: "private", False: "not private"}

Difference = tuple[Condition, Condition]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave: the measures of a classifier; a curve over training time; rounds of removal."""

    value: Mapping[str, float]
    rows: list[dict[str, float]] = field(default_factory=list)
    rounds: list[dict[str, float]] = field(default_factory=list)
    epochs: float = 0.0


Results = Mapping[Condition, Mapping[int, Measured]]  # by condition and seed


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim in one scope; differences are signed so that the claimed direction is positive."""

    claim: int
    scope: str
    verdict: str
    difference: float | None = None
    standard_error: float | None = None
    seeds: int = 0


def judged(claim: int, scope: str, differences: list[float]) -> Finding:
    """The rule, for one difference of each seed."""
    mean, error = mean_and_error(differences)
    if error is None:
        return Finding(claim, scope, "not seen: one seed has no standard error", mean, None, 1)
    verdict = "not seen"
    if abs(mean) > ERRORS * error:
        verdict = "supported" if mean > 0 else "contradicted"
    return Finding(claim, scope, verdict, mean, error, len(differences))


def findings(kind: Kind, results: Results, problems: Mapping[Condition, str]) -> list[Finding]:
    """Every claim, also those that this study does not measure."""
    if kind == "outliers":
        found = list(_removal(results))
    else:
        found = [*_techniques(results), *_data_bias(results)]
        found += _memorisation(results) if kind == "memorisation" else []
    there = {finding.claim for finding in found}
    for claim in CLAIMS.keys() - there:
        missing = claim == 5 and any(condition.data == FACES for condition in problems)
        words = (
            "not run: data not here"
            if missing
            else f"not measured: needs the runs of generalization_figure{RECIPES[claim]}"
        )
        found.append(Finding(claim, "", words))
    return sorted(found, key=lambda finding: finding.claim)


def statement(results: Results, kind: Kind, problems: Mapping[Condition, str]) -> list[dict[str, Any]]:
    """The same as documents for the table."""
    return [
        {
            "claim": finding.claim,
            "words": CLAIMS[finding.claim],
            "scope": finding.scope,
            "verdict": finding.verdict,
            "difference": finding.difference,
            "standard_error": finding.standard_error,
            "seeds": finding.seeds,
        }
        for finding in findings(kind, results, problems)
    ]


def _techniques(results: Results) -> Iterator[Finding]:
    """Claims 1, 3, 5 and 7: all techniques against none, and sharpness-aware training against training without it."""
    all_or_none = _pairs(results, lambda c: replace(c, techniques=BASELINE) if c.techniques == EVERYTHING else None)
    photographs = [pair for pair in all_or_none if pair[0].data != FACES]
    faces = [pair for pair in all_or_none if pair[0].data == FACES]
    skewed = [pair for pair in photographs if _skewed(pair[0])]
    yield from _compared(1, "accuracy", results, [pair for pair in photographs if pair[0].private], "accuracy")
    for private, arm in ARMS.items():
        yield from _compared(
            3, f"bias, {arm}, skewed data", results, [pair for pair in skewed if pair[0].private == private], "bias"
        )
    for private, arm in ARMS.items():
        mine = [pair for pair in faces if pair[0].private == private]
        yield from _compared(5, f"accuracy, {arm}", results, mine, "accuracy")
        yield from _compared(5, f"bias, {arm}", results, mine, "bias")
    for scope, with_it, without in (
        ("alone", "sat", BASELINE),
        ("with the other techniques", EVERYTHING, EVERYTHING.removesuffix(",sat")),
    ):
        pairs = _pairs(results, _without(with_it, without))
        mine = [pair for pair in pairs if pair[0].private]
        yield from _compared(7, f"harmonic score, {scope}", results, mine, "harmonic")


def _without(with_it: str, without: str) -> Callable[[Condition], Condition | None]:
    return lambda c: replace(c, techniques=without) if c.techniques == with_it else None


def _data_bias(results: Results) -> Iterator[Finding]:
    """Claim 4: the same data with 95 and with 75 % of the usual colour."""

    def less(condition: Condition) -> Condition | None:
        if not condition.data.endswith("s-95"):
            return None
        return replace(condition, data=condition.data.removesuffix("95") + "75")

    for private, arm in ARMS.items():
        pairs = [pair for pair in _pairs(results, less) if pair[0].private == private]
        for measure, sign in (("accuracy", -1), ("auc", 1), ("bias", 1)):
            yield from _compared(4, f"{measure}, {arm}", results, pairs, measure, sign=sign)


def _memorisation(results: Results) -> Iterator[Finding]:
    """Claim 2: by how much the AUC is above one half at the last checkpoint that is not over-fitted."""
    for condition, runs in results.items():
        above = [before_overfitting(run.rows)["auc"] - 0.5 for run in runs.values() if run.rows]
        if above:
            yield judged(2, f"AUC above 0.5, {condition.name}", above)


def _removal(results: Results) -> Iterator[Finding]:
    """Claim 6: the last round of removal against the first."""
    for condition, runs in results.items():
        ends = [(run.rounds[-1], run.rounds[0]) for run in runs.values() if len(run.rounds) > 1]
        for measure, sign in (("accuracy", -1), ("bias", 1)):
            differences = [sign * (last[measure] - first[measure]) for last, first in ends]
            if differences:
                yield judged(6, f"{measure}, {condition.name}", differences)


def _pairs(results: Results, other: Callable[[Condition], Condition | None]) -> list[Difference]:
    """Conditions with the one that each is compared with, where both were run."""
    return [(c, o) for c in results if (o := other(c)) is not None and o in results]


def _compared(
    claim: int, scope: str, results: Results, pairs: list[Difference], measure: str, *, sign: int = 1
) -> Iterator[Finding]:
    """The mean difference over these pairs, for each seed that all of them have."""
    if not pairs:
        return
    seeds = set.intersection(*(set(results[c]) & set(results[o]) for c, o in pairs))
    differences = [
        sign * sum(results[c][seed].value[measure] - results[o][seed].value[measure] for c, o in pairs) / len(pairs)
        for seed in sorted(seeds)
    ]
    if differences:
        yield judged(claim, scope, differences)


def _skewed(condition: Condition) -> bool:
    return plain_name(condition.data) != condition.data
