"""Claims: the rule of a verdict on numbers that are made up, and which runs each claim compares."""

from __future__ import annotations

import math

import pytest

from sfumato.experiments.claims import CLAIMS, Finding, Measured, findings, judged
from sfumato.experiments.study_format import EVERYTHING, Condition

INF = math.inf


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.10, 0.11, 0.12], "supported"),
        ([-0.10, -0.11, -0.12], "contradicted"),
        ([0.10, -0.11, 0.02], "not seen"),
        ([0.0, 0.0], "not seen"),
        ([0.1, 0.1], "supported"),
        # standard errors of 1
        ([1.9 - 3**0.5, 1.9, 1.9 + 3**0.5], "not seen"),
        ([2.1 - 3**0.5, 2.1, 2.1 + 3**0.5], "supported"),
    ],
)
def test_a_verdict_needs_more_than_two_standard_errors(differences: list[float], verdict: str) -> None:
    found = judged(1, "accuracy", differences)
    assert found.verdict == verdict
    assert found.difference == pytest.approx(sum(differences) / len(differences))
    assert found.seeds == len(differences)


def test_one_seed_is_no_evidence() -> None:
    found = judged(1, "accuracy", [0.5])
    assert found.verdict.startswith("not seen")
    assert found.standard_error is None


def runs(measure: str, *values: float) -> dict[int, Measured]:
    """One run for each value; all other measures are the same."""
    return {
        seed: Measured({"accuracy": 0.5, "bias": 0.1, "auc": 0.6, "harmonic": 0.5, measure: value})
        for seed, value in enumerate(values)
    }


def of_claim(number: int, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.claim == number]


def test_claim_1_compares_all_techniques_with_none_in_private_training() -> None:
    results = {
        Condition("cifar10", 8.0, "none"): runs("accuracy", 0.40, 0.41, 0.42),
        Condition("cifar10", 8.0, EVERYTHING): runs("accuracy", 0.60, 0.60, 0.60),
        Condition("cifar10s-95", 8.0, "none"): runs("accuracy", 0.30, 0.30, 0.30),
        Condition("cifar10s-95", 8.0, EVERYTHING): runs("accuracy", 0.30, 0.30, 0.30),
        Condition("cifar10", INF, "none"): runs("accuracy", 0.9, 0.9, 0.9),
        Condition("cifar10", INF, EVERYTHING): runs("accuracy", 0.1, 0.1, 0.1),
    }
    (found,) = of_claim(1, findings("techniques", results, {}))
    assert found.verdict == "supported"
    assert found.difference == pytest.approx((0.19 + 0.0) / 2)  # the mean over data sets, and then over seeds
    assert found.standard_error == pytest.approx(0.005 / 3**0.5)


def test_only_seeds_that_both_have_are_compared() -> None:
    results = {
        Condition("cifar10", 8.0, "none"): runs("accuracy", 0.4, 0.4, 0.4),
        Condition("cifar10", 8.0, EVERYTHING): runs("accuracy", 0.6, 0.7),
    }
    (found,) = of_claim(1, findings("techniques", results, {}))
    assert found.seeds == 2
    assert found.difference == pytest.approx(0.25)


def test_claim_3_is_about_bias_on_skewed_data_in_both_arms() -> None:
    results = {
        Condition("cifar10", 8.0, "none"): runs("bias", 0.1, 0.1),
        Condition("cifar10", 8.0, EVERYTHING): runs("bias", 0.4, 0.4),
        Condition("cifar10s-95", 8.0, "none"): runs("bias", 0.2, 0.2),
        Condition("cifar10s-95", 8.0, EVERYTHING): runs("bias", 0.1, 0.1),
        Condition("cifar10s-95", INF, "none"): runs("bias", 0.2, 0.2),
        Condition("cifar10s-95", INF, EVERYTHING): runs("bias", 0.3, 0.3),
    }
    private, other = of_claim(3, findings("techniques", results, {}))
    assert ("private" in private.scope, private.verdict) == (True, "contradicted")
    assert ("not private" in other.scope, other.verdict) == (True, "supported")


def test_claim_4_compares_75_and_95_percent_and_a_lower_accuracy_supports_it() -> None:
    def with_all(accuracy: float, auc: float, bias: float) -> dict[int, Measured]:
        return {seed: Measured({"accuracy": accuracy, "auc": auc, "bias": bias}) for seed in range(2)}

    results = {
        Condition("cifar10s-75", 1.0, "none"): with_all(0.5, 0.5, 0.1),
        Condition("cifar10s-95", 1.0, "none"): with_all(0.4, 0.5, 0.2),
    }
    found = of_claim(4, findings("grid", results, {}))
    assert {f.scope: f.verdict for f in found} == {
        "accuracy, private": "supported",
        "auc, private": "not seen",
        "bias, private": "supported",
    }


def test_claim_5_says_whether_the_data_is_missing() -> None:
    (found,) = of_claim(5, findings("techniques", {}, {Condition("celeba", 8.0, "none"): "not here"}))
    assert found.verdict == "not run: data not here"
    (found,) = of_claim(5, findings("grid", {}, {}))
    assert "generalization_figure1" in found.verdict
    results = {
        Condition("celeba", 8.0, "none"): runs("bias", 0.1, 0.1),
        Condition("celeba", 8.0, EVERYTHING): runs("bias", 0.3, 0.3),
    }
    found = of_claim(5, findings("techniques", results, {}))
    assert {f.scope: f.verdict for f in found} == {"accuracy, private": "not seen", "bias, private": "supported"}


def test_claim_7_takes_sharpness_aware_training_alone_and_with_the_others() -> None:
    others = EVERYTHING.removesuffix(",sat")
    results = {
        Condition("cifar10", 8.0, "none"): runs("harmonic", 0.5, 0.5),
        Condition("cifar10", 8.0, "sat"): runs("harmonic", 0.6, 0.6),
        Condition("cifar10", 8.0, others): runs("harmonic", 0.7, 0.7),
        Condition("cifar10", 8.0, EVERYTHING): runs("harmonic", 0.6, 0.6),
        Condition("cifar10", INF, "none"): runs("harmonic", 0.1, 0.1),
        Condition("cifar10", INF, "sat"): runs("harmonic", 0.1, 0.1),
    }
    alone, together = of_claim(7, findings("techniques", results, {}))
    assert (alone.verdict, together.verdict) == ("supported", "contradicted")


def test_claim_2_looks_at_the_last_checkpoint_that_is_not_over_fitted() -> None:
    def curve(*points: tuple[float, float]) -> Measured:
        rows = [{"validation loss": loss, "auc": auc, "done": 1.0} for loss, auc in points]
        return Measured({"accuracy": 0.5, "bias": 0.1, "auc": 0.6, "harmonic": 0.5}, rows=rows)

    fitted = {seed: curve((2.0, 0.5), (1.0, 0.55 + seed / 100), (1.2, 0.9)) for seed in range(3)}
    (found,) = of_claim(2, findings("memorisation", {Condition("cifar10", INF, "none"): fitted}, {}))
    assert found.verdict == "supported"
    assert found.difference == pytest.approx(0.06)
    still = {seed: curve((2.0, 0.5), (1.0, 0.49 + seed / 100)) for seed in range(3)}
    (found,) = of_claim(2, findings("memorisation", {Condition("cifar10", 8.0, "none"): still}, {}))
    assert found.verdict == "not seen"


def test_claim_6_compares_the_last_round_with_the_first() -> None:
    def rounds(*accuracies: float) -> Measured:
        made = [{"accuracy": accuracy, "bias": 0.1} for accuracy in accuracies]
        return Measured(made[0], rounds=made)

    results = {Condition("cifar10s-95", INF, "none"): {0: rounds(0.5, 0.9, 0.4), 1: rounds(0.52, 0.1, 0.4)}}
    found = of_claim(6, findings("outliers", results, {}))
    assert [(f.scope.split(",")[0], f.verdict) for f in found] == [("accuracy", "supported"), ("bias", "not seen")]
    assert found[0].difference == pytest.approx(0.11)
    begun = {Condition("cifar10s-95", INF, "none"): {0: rounds(0.5)}}
    assert "not measured" in of_claim(6, findings("outliers", begun, {}))[0].verdict


@pytest.mark.parametrize("kind", ["techniques", "memorisation", "grid", "outliers"])
def test_every_claim_has_a_line_also_without_results(kind: str) -> None:
    assert [finding.claim for finding in findings(kind, {}, {})] == list(CLAIMS)
