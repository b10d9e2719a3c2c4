"""Metrics of released classifiers, on cases computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from metrics.answering import looked_up, numbered, saying
from sfumato.contracts import ClassifierMetric
from sfumato.errors import DataError, NotApplicable, UsageError
from sfumato.metrics.accuracy import Accuracy
from sfumato.metrics.accuracy_gap import AccuracyGap
from sfumato.metrics.calibration import Calibration
from sfumato.metrics.classifier_bias import ClassifierBias
from sfumato.metrics.classifier_equalised_odds import ClassifierEqualisedOdds
from sfumato.metrics.worst_class import WorstClass
from sfumato.statistics.answers import equal_mass_calibration_error
from sfumato.values import Groups, Images, Reference

LABELS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
ANSWERS = [0, 0, 0, 1, 1, 1, 0, 2, 0, 1]  # 3 of 4, 2 of 3 and 1 of 3 are right
ABC = ("a", "b", "c")


def test_accuracy_by_hand() -> None:
    score = Accuracy()(saying(ANSWERS, classes=3), numbered(LABELS, ABC))
    assert score.value == pytest.approx(0.6)
    assert score.standard_error == pytest.approx(math.sqrt(0.6 * 0.4 / 10))
    assert score.details["per_class"] == pytest.approx({"a": 3 / 4, "b": 2 / 3, "c": 1 / 3})
    assert score.details["confusions"] == [[3, 1, 0], [1, 2, 0], [1, 1, 1]]
    assert score.details["test_split"] is True


def test_a_class_without_images_has_no_accuracy_and_is_not_the_worst() -> None:
    real = numbered(LABELS, (*ABC, "d"))
    assert Accuracy()(saying(ANSWERS, classes=4), real).details["per_class"]["d"] is None
    worst = WorstClass()(saying(ANSWERS, classes=4), real)
    assert worst.details["worst_class"] == "c"
    assert worst.details["left_out"] == ["class d: no images"]


def test_the_worst_class_by_hand() -> None:
    score = WorstClass()(saying(ANSWERS, classes=3), numbered(LABELS, ABC))
    assert score.value == pytest.approx(1 / 3)
    assert score.standard_error == pytest.approx(math.sqrt(1 / 3 * 2 / 3 / 3))
    assert (score.details["worst_class"], score.details["images_of_it"]) == ("c", 3)
    assert score.higher_is_better


def test_records_of_no_known_class_are_left_out() -> None:
    score = Accuracy()(saying([*ANSWERS, 0], classes=3), numbered([*LABELS, -1], ABC))
    assert (score.value, score.details["images"]) == (pytest.approx(0.6), 10)


def test_calibration_error_by_hand() -> None:
    """Four images in two bins: (0.6, 0.7) of which one is right, (0.8, 0.9) of which both are."""
    sure = torch.tensor([0.9, 0.6, 0.8, 0.7], dtype=torch.float64)
    right = torch.tensor([True, False, True, True])
    by_hand = (abs(1.3 - 1) + abs(1.7 - 2)) / 4
    assert float(equal_mass_calibration_error(sure, right, bins=2)) == pytest.approx(by_hand)
    # more bins than images: every image is a bin
    each = (0.1 + 0.6 + 0.2 + 0.3) / 4
    assert float(equal_mass_calibration_error(sure, right, bins=15)) == pytest.approx(each)
    assert float(equal_mass_calibration_error(sure, right, bins=1)) == pytest.approx(abs(3 - 3) / 4)


def test_calibration_by_hand() -> None:
    probabilities = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], dtype=torch.float64)
    score = Calibration(bins=1)(looked_up(probabilities.log()), numbered([0, 1, 1], ("a", "b")))
    assert score.value == pytest.approx(abs(0.8 + 0.6 + 0.7 - 2) / 3)
    likelihood, brier = score.parts
    losses = [-math.log(0.8), -math.log(0.4), -math.log(0.7)]
    assert (likelihood.name, brier.name) == ("negative-log-likelihood", "brier-score")
    assert likelihood.value == pytest.approx(sum(losses) / 3)
    assert likelihood.standard_error == pytest.approx(float(torch.tensor(losses).double().std()) / math.sqrt(3))
    assert brier.value == pytest.approx((0.08 + 0.72 + 0.18) / 3)
    assert not any(part.higher_is_better for part in (score, *score.parts))


def test_a_classifier_as_often_right_as_sure_is_calibrated() -> None:
    draw = torch.Generator().manual_seed(0)
    sure = 0.5 + 0.5 * torch.rand(20_000, generator=draw)
    right = torch.rand(20_000, generator=draw) < sure
    assert float(equal_mass_calibration_error(sure, right, bins=15)) < 0.01
    assert float(equal_mass_calibration_error(sure, right[torch.randperm(20_000, generator=draw)], bins=15)) > 0.1


def coloured(count: int) -> Images:
    """Orange images of three classes."""
    draw = torch.Generator().manual_seed(0)
    light = torch.randint(100, 250, (count, 1, 4, 4), generator=draw)
    tint = torch.tensor([1.0, 0.6, 0.2])[:, None, None]
    return Images((light * tint).to(torch.uint8), torch.arange(count) % 3, ABC)


def is_grey(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels[:, 0] == pixels[:, 1]).flatten(1).all(1)


@pytest.mark.parametrize(
    ("in_colour", "in_grey", "bias"),
    [
        ([1, 1, 0], [1, 1, 0], 0.0),  # class c is never predicted and left out
        ([1, 0, 0], [0, 1, 0], 0.5),
        ([1, 0, 0], [0.5, 0.5, 0], ((2 / 3 - 0.5) + 0.5) / 2),
    ],
)
def test_bias_of_colour_by_hand(in_colour: list[float], in_grey: list[float], bias: float) -> None:
    """Of 12 images, a share of each is given a class by its place in the list and whether it is grey."""

    def classifier(pixels: torch.Tensor) -> torch.Tensor:
        place = torch.arange(len(pixels)) / len(pixels)
        shares = torch.where(is_grey(pixels)[:, None], torch.tensor(in_grey), torch.tensor(in_colour)).double()
        answer = (place[:, None] >= (shares / shares.sum(1, True)).cumsum(1) - 1e-9).sum(1)
        return torch.nn.functional.one_hot(answer, 3).float()

    images = coloured(12)
    score = ClassifierBias()(classifier, Reference(train=images, test=images))
    assert score.value == pytest.approx(bias)
    assert score.standard_error is not None
    assert score.details["bias_of_the_labels"] == 0
    assert "class c: never predicted" in score.details["left_out"]


def test_bias_of_groups_by_hand() -> None:
    """Of four in g three are given a, of four in h one is: max s / sum s is 3/4 for both classes."""
    real = numbered([0, 0, 1, 1, 0, 0, 1, 1], ("a", "b"), groups=[0, 0, 0, 0, 1, 1, 1, 1])
    score = ClassifierBias()(saying([0, 0, 0, 1, 1, 1, 0, 1], classes=2), real)
    assert score.value == pytest.approx(0.75 - 0.5)
    assert 0 < score.standard_error < 0.3
    assert score.details["classifier"]["g"]["classes"]["a"]["predicted"] == 3


def test_the_gap_between_groups_by_hand() -> None:
    real = numbered([0, 0, 1, 1, 0, 0, 1, 1], ("a", "b"), groups=[0, 0, 0, 0, 1, 1, 1, 1])
    classifier = saying([0, 0, 0, 1, 1, 1, 0, 1], classes=2)  # 3 of 4 right in g, 1 of 4 in h
    gap = AccuracyGap()(classifier, real)
    assert gap.value == pytest.approx(0.5)
    assert [(part.name, part.value) for part in gap.parts] == [("worst-group-accuracy", 0.25)]
    assert gap.parts[0].higher_is_better
    assert not gap.higher_is_better
    odds = ClassifierEqualisedOdds()(classifier, real)
    assert odds.value == pytest.approx(1.0)  # a is found in all of g and in none of h
    assert [(part.name, part.value) for part in odds.parts] == [("demographic-parity", pytest.approx(0.5))]
    for score in (gap, *gap.parts, odds, *odds.parts):
        assert 0 < score.standard_error < 0.5
    assert 0 < gap.details["by_chance"]["accuracy-gap"] < 0.5


def test_the_error_of_a_gap_is_its_spread_over_samples() -> None:
    """Two groups of 120, right in 0.9 and 0.7 of the cases."""
    draw = torch.Generator().manual_seed(0)
    values, errors = [], []
    for _ in range(40):
        groups = torch.arange(240) % 2
        right = torch.rand(240, generator=draw) < torch.tensor([0.9, 0.7])[groups]
        real = numbered([0] * 240, ("a", "b"), groups=groups.tolist())
        score = AccuracyGap(resamples=50)(saying((~right).long().tolist(), classes=2), real)
        values.append(score.value)
        errors.append(score.standard_error)
    assert torch.tensor(errors).mean() == pytest.approx(float(torch.tensor(values).std()), rel=0.3)


GROUPED: list[ClassifierMetric] = [AccuracyGap(), ClassifierEqualisedOdds(), ClassifierBias()]


@pytest.mark.parametrize("metric", GROUPED, ids=lambda metric: type(metric).__name__)
def test_grey_images_without_groups_cannot_be_judged(metric: ClassifierMetric) -> None:
    with pytest.raises(NotApplicable, match="groups") as refused:
        metric(saying(ANSWERS, classes=3), numbered(LABELS, ABC))
    assert "--group" in refused.value.fix


def test_one_group_alone_cannot_be_judged() -> None:
    real = numbered(LABELS, ABC)
    alone = replace(real, groups=Groups(("g", "h"), torch.zeros(10).long(), torch.zeros(10).long()))
    with pytest.raises(NotApplicable, match="at least 2 groups, got 1"):
        AccuracyGap()(saying(ANSWERS, classes=3), alone)


EVERY: list[ClassifierMetric] = [Accuracy(), WorstClass(), Calibration(), *GROUPED]


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: type(metric).__name__)
def test_answers_that_are_none_are_refused(metric: ClassifierMetric) -> None:
    real = numbered(LABELS, ABC, groups=[0, 1] * 5)
    with pytest.raises(UsageError, match=r"Expected logits of 3 classes for 10 images, got the shape \(10, 2\)"):
        metric(looked_up(torch.zeros(10, 2)), real)
    with pytest.raises(DataError, match="Expected finite logits"):
        metric(looked_up(torch.full((10, 3), torch.nan)), real)


@pytest.mark.parametrize("metric", EVERY[:3], ids=lambda metric: type(metric).__name__)
def test_no_image_of_a_known_class_is_refused(metric: ClassifierMetric) -> None:
    with pytest.raises(DataError, match="Expected held-out images of a known class"):
        metric(saying(ANSWERS, classes=3), numbered([-1] * 10, ABC))
