"""The forecast of a plan: between what was measured, for images of the same kind, and nothing beyond."""

from __future__ import annotations

import math

import pytest

from sfumato.making.forecast import Measured, forecast, measured
from sfumato.making.release import Job, plan_release
from sfumato.privacy import Budget
from sfumato.values import Spec

from commands import sfumato

TEN, TWO = tuple("0123456789"), ("a", "b")


def row(data: str = "easy", accuracy: float = 0.9, **changes: object) -> Measured:
    facts = {"colour": False, "records": 10_000, "classes": 10, "epsilon": 1.0, "student": "logits"}
    return Measured(data=data, accuracy=accuracy, **{**facts, **changes})  # type: ignore[arg-type]


def grey(count: int = 10_000, classes: tuple[str, ...] = TEN) -> Spec:
    return Spec(count, 1, 28, 28, classes)


def test_it_spans_the_public_data_sets_of_the_same_kind() -> None:
    table = [row("easy", 0.9), row("hard", 0.7), row("coloured", 0.2, colour=True)]
    (expected,) = forecast(grey(), Budget(1.0, 1e-5), table)
    assert (expected.low, expected.high) == pytest.approx((0.7, 0.9))
    assert expected.data == ("easy", "hard")
    assert expected.text() == "70 to 90 % accuracy of a small network, if yours is like easy and hard"


def test_records_and_epsilon_count_by_their_product() -> None:
    table = [row(accuracy=0.5, epsilon=0.1), row(accuracy=0.9, epsilon=10.0)]
    for count, epsilon in ((10_000, 1.0), (100_000, 0.1), (1_000, 10.0)):
        (expected,) = forecast(grey(count), Budget(epsilon, 1e-5), table)
        assert expected.low == pytest.approx(0.7)  # half of the way in the logarithm of the signal


def test_the_distance_from_chance_is_what_carries_over_to_other_numbers_of_classes() -> None:
    (expected,) = forecast(grey(2_000, TWO), Budget(1.0, 1e-5), [row(accuracy=0.55)])
    assert expected.low == pytest.approx(0.75)  # half of the way from 10 % is half of the way from 50 %


@pytest.mark.parametrize("epsilon", [0.4, 2.1, math.inf])
def test_nothing_is_said_beyond_what_was_tried(epsilon: float) -> None:
    assert forecast(grey(), Budget(epsilon, 1e-5), [row()]) == ()


def test_students_of_a_network_are_expected_only_where_it_is_used() -> None:
    table = [row(), row(student="features")]
    assert [each.student for each in forecast(grey(), Budget(1.0, 1e-5), table)] == ["logits"]
    assert [each.student for each in forecast(grey(), Budget(1.0, 1e-5), table, lite0=True)] == ["logits", "features"]


def test_the_table_that_is_shipped_has_what_the_benchmark_measures() -> None:
    table = measured()
    assert {line.colour for line in table} == {True, False}
    assert all(1 / line.classes - 0.1 < line.accuracy <= 1 and line.signal > 0 for line in table)


def test_a_plan_says_what_to_expect_of_the_default_alone() -> None:
    expected = plan_release(Job("digits", epsilon=10.0)).expected
    assert expected
    assert all(0 < each.low <= each.high <= 1 for each in expected)
    assert plan_release(Job("digits", method="dp-merf", epsilon=10.0)).expected == ()
    assert "  expect  " in sfumato("plan", "digits", "--epsilon", "10").out
