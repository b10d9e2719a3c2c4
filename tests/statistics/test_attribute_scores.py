"""Scores of attributes by hand, and every alarm on the degenerate results that it is for, and on no other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.statistics.attribute_scores import (
    AttributeScore,
    collapsed_baseline,
    constant_prediction,
    degenerate_head,
    difference,
    score_attribute,
)

RACES = ("White", "Black", "Asian", "Indian", "Others")
# The classes of the real test images of the paper's FairFace, so that "Black" has the accuracy of its masked head.
FAIRFACE = torch.arange(5).repeat_interleave(torch.tensor([1900, 1513, 2700, 1387, 2500]))


def scored(*predicted: Tensor, truth: Tensor = FAIRFACE, trained_on: Tensor | None = None) -> AttributeScore:
    learnt = truth if trained_on is None else trained_on
    return score_attribute(predicted, [truth] * len(predicted), learnt, RACES, images=len(truth))


def partly_right(accuracy: float, *, truth: Tensor = FAIRFACE) -> Tensor:
    """Predictions that are right for this share of the images of every class, and of the next class for the others."""
    predicted = truth.clone()
    for one in truth.unique():
        rows = (truth == one).nonzero()[:, 0]
        wrong = rows[round(accuracy * len(rows)) :]
        predicted[wrong] = (one + 1) % len(RACES)
    return predicted


def test_by_hand() -> None:
    truth = torch.tensor([0, 0, 0, 1, 1, 2])
    first, second = torch.tensor([0, 0, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 0, 0])
    score = score_attribute(
        [first, second], [truth, truth], torch.tensor([1, 1, 0]), ("a", "b", "c", "d"), images=len(truth)
    )
    assert score.accuracies == pytest.approx((4 / 6, 4 / 6))
    assert score.recalls == {"a": pytest.approx(5 / 6), "b": pytest.approx(3 / 4), "c": 0.0, "d": None}
    assert score.balanced == pytest.approx((5 / 6 + 3 / 4) / 3)
    assert score.predicted == {"a": 8 / 12, "b": 4 / 12, "c": 0.0, "d": 0.0}
    assert (score.majority, score.test_majority) == (2 / 6, 3 / 6)  # b is what training had most of
    assert score.chance == 1 / 3  # of d there is no test image
    assert score.seed_deviation == 0
    assert score.constant == (None, None)


def test_the_error_is_that_of_seeds_and_of_test_images() -> None:
    score = scored(partly_right(0.5), partly_right(0.7))
    over_seeds = 0.2 / math.sqrt(2) / math.sqrt(2)
    assert score.seed_deviation == pytest.approx(0.2 / math.sqrt(2), rel=1e-3)
    assert score.error == pytest.approx(math.hypot(over_seeds, math.sqrt(0.6 * 0.4 / len(FAIRFACE))), rel=1e-3)
    assert scored(partly_right(0.6)).seed_deviation is None
    assert scored(FAIRFACE).error > 0  # all right by chance is not known for certain


def test_a_difference_has_the_error_of_both() -> None:
    first, second = scored(partly_right(0.7)), scored(partly_right(0.5))
    found = difference(first, second)
    assert found.value == pytest.approx(0.2, abs=1e-3)
    assert found.error == pytest.approx(math.hypot(first.error, second.error))


def test_the_masked_head_of_the_paper_is_degenerate() -> None:
    """PT 15.13 in every setup: the head answers one class, and that is the class's frequency."""
    told = scored(torch.ones_like(FAIRFACE))
    assert told.accuracy == pytest.approx(0.1513)
    assert told.balanced == pytest.approx(1 / 5)
    assert told.recalls["Black"] == 1
    assert "15.1 %: below the majority rate (27.0 %) is degenerate, not privacy" in (degenerate_head(told) or "")
    assert "1 of 1 answer one class (Black)" in (constant_prediction(told) or "")


def test_a_head_that_knows_the_attribute_is_not_degenerate() -> None:
    told = scored(partly_right(0.5))
    assert degenerate_head(told) is None
    assert constant_prediction(told) is None


def test_a_head_that_is_below_the_majority_rate_by_chance_is_not_degenerate() -> None:
    few = torch.tensor([0, 0, 0, 1, 1, 2])
    assert degenerate_head(scored(torch.tensor([1, 1, 0, 1, 0, 0]), truth=few)) is None


def test_answering_one_class_is_right_where_it_is_as_common_as_that() -> None:
    common = torch.arange(2).repeat_interleave(torch.tensor([91, 9]))
    assert constant_prediction(scored(torch.zeros_like(common), truth=common)) is None
    less = torch.arange(2).repeat_interleave(torch.tensor([89, 11]))
    assert constant_prediction(scored(torch.zeros_like(less), truth=less)) is not None


def test_one_collapsed_seed_of_three_is_told() -> None:
    score = scored(partly_right(0.7), torch.full_like(FAIRFACE, 2), partly_right(0.7))
    assert "1 of 3 answer one class (Asian)" in (constant_prediction(score) or "")
    nearly = torch.full_like(FAIRFACE, 2)
    nearly[: round(0.06 * len(nearly))] = 0
    assert constant_prediction(scored(nearly)) is None  # 94 % are not more than 95 %


def test_the_collapsed_baseline_of_the_paper_is_told() -> None:
    """Table 12, setup A, G: race 35.68 on real images, below each method (42.34, 47.11, 50.86)."""
    collapsed = scored(partly_right(0.3568))
    for method in (0.4234, 0.4711, 0.5086):
        assert "the baseline collapsed" in (collapsed_baseline(collapsed, scored(partly_right(method))) or "")
    assert collapsed_baseline(scored(partly_right(0.6724)), scored(partly_right(0.4594))) is None  # Tr+V+G of the same


def test_a_baseline_below_the_majority_rate_collapsed() -> None:
    alarm = collapsed_baseline(scored(torch.full_like(FAIRFACE, 3)), scored(torch.full_like(FAIRFACE, 3)))
    assert "13.9 %, below the majority rate 27.0 %" in (alarm or "")


def test_a_baseline_below_the_majority_rate_by_chance_did_not_collapse() -> None:
    """Where nothing can be learnt, an honest judge is below the majority rate as often as above it."""
    coin = torch.arange(2).repeat_interleave(torch.tensor([51, 49]))
    by_chance = scored(partly_right(0.47, truth=coin), truth=coin)
    assert 0 < by_chance.majority - by_chance.accuracy < by_chance.error
    assert collapsed_baseline(by_chance, by_chance) is None


def test_a_baseline_that_is_behind_by_chance_did_not_collapse() -> None:
    assert collapsed_baseline(scored(partly_right(0.600)), scored(partly_right(0.615))) is None


def test_nothing_to_score() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(DataError, match="Expected at least one image"):
        scored(nothing, truth=nothing)
