"""What a plan says of its questions: what for, and which part of the budget."""

from __future__ import annotations

import pytest

from sfumato.experiments.questions import plain_line, questions, shares, technical_line
from sfumato.privacy import GaussianSum, calibrate


def test_shares_are_those_that_the_budget_was_divided_by() -> None:
    planned = (
        GaussianSum(share=3.0, purpose="the mean of each class"),
        GaussianSum(share=1.0, rounds=50, sampling=0.1, purpose="training of a teacher"),
    )
    calibrated = calibrate(planned, epsilon=1.0, delta=1e-5)
    assert shares(calibrated) == pytest.approx([0.75, 0.25])
    first, second = questions(calibrated)
    assert plain_line(first) == "  asks        75 %  the mean of each class"
    assert plain_line(second) == "  asks        25 %  training of a teacher"
    assert "noise multiplier" in technical_line(second)
    assert "rounds 50, sampling 0.1" in technical_line(second)


def test_without_noise_nothing_is_shared() -> None:
    (question,) = questions([GaussianSum(noise_multiplier=0.0, purpose="anything")])
    assert question["share_of_budget"] is None
    assert "no noise" in plain_line(question)
