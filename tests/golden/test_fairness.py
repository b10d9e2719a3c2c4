"""Group figures against Fairlearn's, for two classes and any number of groups; a classifier's also scikit-learn's."""

from __future__ import annotations

import pytest
import torch

from metrics.answering import looked_up, numbered
from sfumato.metrics.accuracy import Accuracy
from sfumato.metrics.accuracy_gap import AccuracyGap
from sfumato.metrics.calibration import Calibration
from sfumato.metrics.classifier_equalised_odds import ClassifierEqualisedOdds
from sfumato.statistics import groups
from sfumato.values import Reference

NAMES = 3
reason = "needs fairlearn, which is no dependency of Sfumato"


@pytest.fixture(scope="module", params=range(4))
def judged(request: pytest.FixtureRequest) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Answers, labels and groups that depend on each other."""
    draw = torch.Generator().manual_seed(request.param)
    of_group = torch.randint(NAMES, (300,), generator=draw)
    labels = (torch.rand(300, generator=draw) < 0.3 + 0.2 * of_group).long()
    wrong = torch.rand(300, generator=draw) < 0.1 + 0.1 * of_group
    return torch.where(wrong, 1 - labels, labels), labels, of_group


def counts(judged: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return groups.tally(*judged, names=NAMES, classes=2)


def test_gaps_are_fairlearns(judged: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    metrics = pytest.importorskip("fairlearn.metrics", reason=reason)
    predicted, labels, of_group = (values.numpy() for values in judged)
    parity = metrics.demographic_parity_difference(labels, predicted, sensitive_features=of_group)
    odds = metrics.equalized_odds_difference(labels, predicted, sensitive_features=of_group)
    assert groups.demographic_parity(counts(judged)) == pytest.approx(parity, abs=1e-12)
    assert groups.equalised_odds(counts(judged)) == pytest.approx(odds, abs=1e-12)


def test_rates_are_those_of_its_metric_frame(judged: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    metrics = pytest.importorskip("fairlearn.metrics", reason=reason)
    from sklearn.metrics import accuracy_score, precision_score

    ours = {
        "accuracy": (accuracy_score, groups.accuracy(counts(judged))),
        "precision": (precision_score, groups.precision(counts(judged))[:, 1]),
        "recall": (metrics.true_positive_rate, groups.recall(counts(judged))[:, 1]),
        "false positives": (metrics.false_positive_rate, groups.false_positive_rate(counts(judged))[:, 1]),
        "selection": (metrics.selection_rate, groups.selection_rate(counts(judged))[:, 1]),
    }
    predicted, labels, of_group = (values.numpy() for values in judged)
    frame = metrics.MetricFrame(
        metrics={name: theirs for name, (theirs, _) in ours.items()},
        y_true=labels,
        y_pred=predicted,
        sensitive_features=of_group,
    )
    for name, (_, rates) in ours.items():
        assert rates.tolist() == pytest.approx(frame.by_group[name].tolist(), abs=1e-12), name
    assert groups.accuracy_gap(counts(judged)) == pytest.approx(frame.difference()["accuracy"], abs=1e-12)


@pytest.fixture(scope="module", params=range(4))
def by_classifier(request: pytest.FixtureRequest) -> tuple[torch.Tensor, Reference]:
    """A classifier's logits of 200 images of two groups, whose accuracy depends on the group."""
    draw = torch.Generator().manual_seed(request.param)
    of_group = torch.randint(2, (200,), generator=draw)
    labels = (torch.rand(200, generator=draw) < 0.3 + 0.3 * of_group).long()
    logits = torch.randn(200, 2, generator=draw).double()
    logits[torch.arange(200), labels] += 1.5 - of_group
    return logits, numbered(labels.tolist(), ("a", "b"), groups=of_group.tolist())


def test_gaps_of_a_released_classifier_are_fairlearns(by_classifier: tuple[torch.Tensor, Reference]) -> None:
    metrics = pytest.importorskip("fairlearn.metrics", reason=reason)
    from sklearn.metrics import accuracy_score

    logits, real = by_classifier
    labels, predicted, of_group = real.test.labels.numpy(), logits.argmax(1).numpy(), real.groups.test.numpy()
    odds = ClassifierEqualisedOdds(resamples=2)(looked_up(logits), real)
    gap = AccuracyGap(resamples=2)(looked_up(logits), real)
    parity = metrics.demographic_parity_difference(labels, predicted, sensitive_features=of_group)
    frame = metrics.MetricFrame(metrics=accuracy_score, y_true=labels, y_pred=predicted, sensitive_features=of_group)
    theirs = metrics.equalized_odds_difference(labels, predicted, sensitive_features=of_group)
    assert odds.value == pytest.approx(theirs, abs=1e-12)
    assert odds.parts[0].value == pytest.approx(parity, abs=1e-12)
    assert gap.value == pytest.approx(frame.difference(), abs=1e-12)
    assert gap.parts[0].value == pytest.approx(frame.group_min(), abs=1e-12)


def test_accuracy_and_likelihood_are_scikit_learns(by_classifier: tuple[torch.Tensor, Reference]) -> None:
    from sklearn.metrics import accuracy_score, brier_score_loss, confusion_matrix, log_loss

    logits, real = by_classifier
    labels, probabilities = real.test.labels.numpy(), logits.softmax(1).numpy()
    accuracy, calibration = Accuracy()(looked_up(logits), real), Calibration()(looked_up(logits), real)
    likelihood, brier = (part.value for part in calibration.parts)
    assert accuracy.value == pytest.approx(accuracy_score(labels, probabilities.argmax(1)))
    assert accuracy.details["confusions"] == confusion_matrix(labels, probabilities.argmax(1)).tolist()
    assert likelihood == pytest.approx(log_loss(labels, probabilities), rel=1e-12)
    # with two classes both squared differences are equal, and scikit-learn counts one of them
    assert brier == pytest.approx(2 * brier_score_loss(labels, probabilities[:, 1]), rel=1e-12)
