"""Fairness: tables by hand, planted unfairness is seen, and what cannot be judged is said."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from metrics.digits import reference
from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.harmonic import FORMULAS, harmonic_score
from sfumato.metrics.equalised_odds import EqualisedOdds
from sfumato.metrics.group_representation import GroupRepresentation
from sfumato.metrics.model_bias import ModelBias
from sfumato.metrics.representation import Representation
from sfumato.statistics import groups as by_group
from sfumato.statistics.predicted_classes import grey
from sfumato.values import Groups, Images, Reference, Score

QUICK = {"seeds": (0,), "images_seen": 1_000, "resamples": 50}
NAMES = ("plain", "turned")


# Two groups, three classes: rows are true classes, columns predicted ones; the second group has no image of class c.
COUNTS = torch.tensor([[[8, 2, 0], [1, 9, 0], [0, 0, 5]], [[3, 1, 0], [3, 3, 0], [0, 0, 0]]]).double()


def test_rates_by_hand() -> None:
    assert by_group.accuracy(COUNTS).tolist() == pytest.approx([22 / 25, 6 / 10])
    assert by_group.selection_rate(COUNTS)[1].tolist() == pytest.approx([0.6, 0.4, 0])
    assert by_group.recall(COUNTS)[0].tolist() == pytest.approx([0.8, 0.9, 1])
    assert by_group.recall(COUNTS)[1, :2].tolist() == pytest.approx([0.75, 0.5])
    assert by_group.recall(COUNTS)[1, 2].isnan()
    assert by_group.false_positive_rate(COUNTS)[0].tolist() == pytest.approx([1 / 15, 2 / 15, 0])
    assert by_group.false_positive_rate(COUNTS)[1].tolist() == pytest.approx([3 / 6, 1 / 4, 0])
    assert by_group.precision(COUNTS)[0].tolist() == pytest.approx([8 / 9, 9 / 11, 1])
    assert by_group.precision(COUNTS)[1, 2].isnan()


def test_gaps_by_hand() -> None:
    assert by_group.demographic_parity(COUNTS) == pytest.approx(0.6 - 9 / 25)
    assert by_group.equalised_odds(COUNTS) == pytest.approx(1 / 2 - 1 / 15)  # wrongly given the first class
    assert by_group.accuracy_gap(COUNTS) == pytest.approx(0.88 - 0.6)
    assert by_group.worst_accuracy(COUNTS) == pytest.approx(0.6)
    empty = torch.cat([COUNTS, torch.zeros(1, 3, 3)])  # a third group without images changes nothing
    for figure in (
        by_group.demographic_parity,
        by_group.equalised_odds,
        by_group.accuracy_gap,
        by_group.worst_accuracy,
        by_group.prediction_bias,
    ):
        assert figure(empty) == figure(COUNTS)
    assert math.isnan(by_group.accuracy_gap(COUNTS[:1]))


def test_tables_and_words() -> None:
    table = by_group.table(COUNTS, names=NAMES, classes="abc")
    assert table["turned"]["images"] == 10
    assert table["turned"]["classes"]["c"]["recall"] is None
    assert table["plain"]["classes"]["a"] == {
        "images": 10,
        "predicted": 9,
        "recall": 0.8,
        "false_positive_rate": pytest.approx(1 / 15),
        "precision": pytest.approx(8 / 9),
        "selection_rate": pytest.approx(9 / 25),
    }
    assert by_group.absent_classes(COUNTS, names=NAMES, classes="abc") == ["group turned: no images of class c"]


def test_a_tally_counts_only_what_is_known() -> None:
    predicted, labels = torch.tensor([0, 1, 1, 0, 1]), torch.tensor([0, 0, 1, -1, 1])
    counts = by_group.tally(predicted, labels, torch.tensor([0, 0, 1, 1, 7]), names=2, classes=2)
    assert counts.tolist() == [[[1, 1], [0, 0]], [[0, 0], [0, 1]]]


def test_prediction_bias_by_hand() -> None:
    def biased(*given: list[float]) -> float:  # groups by predicted class
        return by_group.prediction_bias(torch.tensor(given)[:, None].expand(-1, len(given[0]), -1).double())

    assert biased([5, 5, 0], [5, 5, 0]) == pytest.approx(0)  # the class that is never predicted is left out
    assert biased([10, 0], [0, 10]) == pytest.approx(0.5)
    assert biased([9, 3], [1, 7]) == pytest.approx(
        (((9 / 12) / (9 / 12 + 1 / 8)) + ((7 / 8) / (3 / 12 + 7 / 8))) / 2 - 0.5
    )
    assert biased([6, 4], [4, 6]) == pytest.approx(0.1)
    assert biased([10, 0, 0], [0, 10, 0], [0, 0, 10]) == pytest.approx(0.5)


def test_the_bootstrap_knows_the_error_of_a_mean() -> None:
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(400, generator=draw).double()
    (error,) = by_group.bootstrap_errors(lambda rows: values[rows].mean()[None], 400, resamples=400, draw=draw)
    assert error == pytest.approx(float(values.std()) / 20, rel=0.15)
    assert by_group.error_of_mean(torch.tensor([1.0]), 0.3) == pytest.approx(0.3)
    assert by_group.error_of_mean(torch.tensor([1.0, 1.8]), 0.3) == pytest.approx(0.5)


def test_groups_are_dealt_anew_within_a_class() -> None:
    labels, groups = torch.arange(600) % 3, (torch.arange(600) % 3 == 0).long()
    assert torch.equal(by_group.shuffled_groups(groups, labels, torch.Generator().manual_seed(0)), groups)
    halves = torch.arange(600) // 300
    dealt = by_group.shuffled_groups(halves, labels, torch.Generator().manual_seed(0))
    assert not torch.equal(dealt, halves)
    assert torch.equal(dealt.bincount(), halves.bincount())


def halves(labels: torch.Tensor, draw: torch.Generator, *, contrast: float) -> torch.Tensor:
    """Grey 8x8 images of three equal channels, bright on the side that the label says, under much noise."""
    side = (torch.arange(8) >= 4).long()[None, :] == labels[:, None]  # (n, 8)
    light = 90 + contrast * side[:, None, :] + 40 * torch.randn(len(labels), 8, 8, generator=draw)
    return light.clamp(0, 255)[:, None].expand(-1, 3, -1, -1)


def coloured(count: int, colour_of_class: tuple[float, float], seed: int) -> Images:
    """So much of each class in orange, the rest in grey."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    orange = torch.rand(count, generator=draw) < torch.tensor(colour_of_class)[labels]
    tint = torch.where(orange[:, None], torch.tensor([1.0, 0.6, 0.2]), torch.ones(3))[:, :, None, None]
    return Images((halves(labels, draw, contrast=15) * tint).to(torch.uint8), labels, ("left", "right"))


def test_colour_that_goes_with_the_class_is_seen_as_bias() -> None:
    fair = coloured(300, (0.5, 0.5), 0)
    real = Reference(train=fair, test=coloured(200, (0.9, 0.9), 1))
    metric = ModelBias(**QUICK)
    unbiased, biased = metric(coloured(300, (0.5, 0.5), 2), real), metric(coloured(300, (0.95, 0.05), 2), real)
    assert biased.value > unbiased.value + 0.15
    assert biased.value > unbiased.value + 3 * math.hypot(unbiased.standard_error, biased.standard_error)
    assert biased.parts[0].name == "model-bias-amplification"
    assert biased.parts[0].value > 0.15
    assert biased.details["bias_of_the_labels"] == 0
    assert any("no colour to lose" in said for said in biased.details["left_out"])


def test_grey_is_pillows() -> None:
    pixels = torch.randint(0, 256, (2, 3, 9, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for ours, image in zip(grey(pixels), pixels, strict=True):
        theirs = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
        assert np.array_equal(ours[0], np.asarray(theirs))
        assert torch.equal(ours[0], ours[2])


def grouped(count: int, seed: int, *, turned: float = 0.5) -> tuple[Images, torch.Tensor]:
    """One-channel halves, some of them as negatives: the second group."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    groups = (torch.rand(count, generator=draw) < turned).long()
    light = halves(labels, draw, contrast=60)[:, :1]
    pixels = torch.where(groups[:, None, None, None] == 1, 255 - light, light).to(torch.uint8)
    return Images(pixels, labels, ("left", "right")), groups


@pytest.fixture(scope="module")
def people() -> Reference:
    (train, of_train), (test, of_test) = grouped(300, 0), grouped(300, 1)
    of_test[0] = -1
    return Reference(train=train, test=test, groups=Groups((*NAMES, "absent"), of_train, of_test))


def test_a_release_that_mislabels_one_group_has_a_gap(people: Reference) -> None:
    fair, groups = grouped(300, 2)
    wrong = (groups == 1) & (torch.arange(300) % 10 < 8)
    unfair = replace(fair, labels=torch.where(wrong, 1 - fair.labels, fair.labels))
    metric = EqualisedOdds(**QUICK)
    good, bad = metric(fair, people), replace(metric, seeds=(0, 1))(unfair, people)
    assert bad.value > good.value + 0.3
    assert bad.value > 3 * bad.details["by_chance"]["equalised-odds"]
    figures = {part.name: part for part in bad.parts}
    assert figures["worst-group-accuracy"].higher_is_better
    assert figures["worst-group-accuracy"].value < 0.5
    assert figures["equalised-odds-amplification"].value > 0.3
    assert all(part.standard_error is not None for part in (bad, *bad.parts))
    assert bad.details["left_out"] == ["group absent: no images", "1 images of no known class or group"]
    groups = bad.details["release"]["by_group"]
    assert groups["turned"]["accuracy"] < groups["plain"]["accuracy"]
    assert sum(groups[name]["images"] for name in NAMES) == 299
    assert bad.details["real"]["by_group"]["turned"]["accuracy"] > 0.7


def test_the_bias_of_groups_follows_what_is_predicted(people: Reference) -> None:
    release, groups = grouped(300, 2)
    split = replace(release, labels=groups)  # the group is all that can be learnt
    score = ModelBias(**QUICK)(split, people)
    assert score.value > 0.35
    assert score.standard_error > 0
    assert score.details["bias_of_the_labels"] < 0.15


def test_a_group_that_fades_is_estimated(people: Reference) -> None:
    metric = GroupRepresentation(**QUICK)
    even, fading = metric(grouped(300, 3)[0], people), metric(grouped(300, 3, turned=0.1)[0], people)
    assert even.value > 0.8
    assert fading.value == pytest.approx(0.2, abs=0.12)
    assert fading.details["worst_group"] == "turned"
    assert 0 < fading.standard_error < 0.2
    shuffled = torch.arange(300) // 150  # nothing in the pixels says this
    hidden = replace(people, groups=Groups(NAMES, shuffled))
    with pytest.raises(NotApplicable, match="tell apart"):
        metric(people.train, hidden)


def test_confusions_are_taken_out_of_the_estimate() -> None:
    from sfumato.metrics.group_representation import _corrected

    confusions = torch.tensor([[80.0, 20.0], [30.0, 70.0]]).double()
    said = 1000 * (0.9 * torch.tensor([0.8, 0.2]) + 0.1 * torch.tensor([0.3, 0.7])).double()
    assert _corrected(said, confusions).tolist() == pytest.approx([0.9, 0.1])


def test_a_release_without_a_class_is_reported() -> None:
    real = reference()
    keep = real.train.labels != 3
    score = Representation()(Images(real.train.pixels[keep], real.train.labels[keep], real.train.classes), real)
    assert (score.value, score.standard_error) == (0, 0)
    assert score.details["missing_classes"] == ["3"]
    figures = {part.name: part for part in score.parts}
    share = float((real.train.labels == 3).double().mean())
    assert figures["class-share-distance"].value == pytest.approx(share)
    assert figures["worst-class-coverage"].value == 0
    assert figures["worst-class-coverage"].details["worst_class"] == "3"


def test_representation_of_the_data_itself_and_of_hollow_labels() -> None:
    real = reference()
    good = Representation()(real.train, real)
    assert good.value == 1
    coverage = good.parts[1]
    by_real = coverage.details["with_real_training_images_as_the_release"]
    assert coverage.value == pytest.approx(min(by_real.values()), abs=0.2)
    hollow = replace(real.train, pixels=torch.where(real.train.labels[:, None, None, None] == 7, 0, real.train.pixels))
    worst = Representation()(hollow, real).parts[1]
    assert (worst.value, worst.details["worst_class"]) == (0, "7")
    assert Representation(neighbours=1_000)(real.train, real).parts[1:] == ()


def test_half_of_a_rare_class() -> None:
    real = reference()
    keep = (real.train.labels != 8) | (torch.arange(len(real.train)) % 2 == 0)
    score = Representation()(Images(real.train.pixels[keep], real.train.labels[keep], real.train.classes), real)
    counts = score.details["classes"]["8"]
    assert score.value == pytest.approx(counts["released"] / int(keep.sum()) / (counts["real"] / len(real.train)))
    assert score.details["worst_class"] == "8"


@pytest.mark.parametrize("metric", [EqualisedOdds(), GroupRepresentation(), ModelBias()])
def test_grey_images_without_groups_cannot_be_judged(metric: EqualisedOdds) -> None:
    with pytest.raises(NotApplicable, match="groups") as refused:
        metric(reference().train, reference())
    assert "--group" in refused.value.fix


def scores(accuracy: float, auc: float, bias: float, error: float | None = 0.01) -> tuple[Score, Score, Score]:
    return tuple(Score(n, v, error, True) for n, v in zip("apf", (accuracy, auc, bias), strict=True))


def test_harmonic_score_by_hand() -> None:
    score = harmonic_score(*scores(0.8, 0.6, 0.1))
    assert score.value == pytest.approx(0.8)  # all three terms are 0.8
    assert score.standard_error == pytest.approx(math.sqrt(0.01**2 + 0.02**2 + 0.02**2) / 3)
    assert score.details["formula"] == FORMULAS["bounded"]
    raw = harmonic_score(*scores(0.8, 0.6, 0.1), variant="raw")
    assert raw.value == pytest.approx(3 / (1 / 0.8 + 1 / 0.4 + 1 / 0.9))
    assert raw.details["variant"] == "raw"


def test_harmonic_score_at_its_edges() -> None:
    assert harmonic_score(*scores(1, 0.4, 0)).value == pytest.approx(1)  # an AUC below one half is no better than it
    for zero in ((0, 0.5, 0), (1, 1, 0), (1, 0.5, 0.5)):
        assert harmonic_score(*scores(*zero)).value == 0
    assert harmonic_score(*scores(0, 1, 0)).standard_error is None
    assert harmonic_score(*scores(0.8, 0.6, 0.1, None)).standard_error is None
    for wrong in ((1.2, 0.5, 0), (0.5, -0.1, 0), (0.5, 0.5, 0.7), (math.nan, 0.5, 0)):
        with pytest.raises(UsageError, match="Expected"):
            harmonic_score(*scores(*wrong))


def test_the_error_of_the_harmonic_score_is_its_slope() -> None:
    def at(accuracy: float, auc: float, bias: float) -> float:
        return harmonic_score(*scores(accuracy, auc, bias)).value

    here, step = (0.7, 0.65, 0.2), 1e-6
    slopes = [(at(*(v + step * (i == j) for j, v in enumerate(here))) - at(*here)) / step for i in range(3)]
    assert harmonic_score(*scores(*here)).standard_error == pytest.approx(0.01 * math.hypot(*slopes), rel=1e-4)
