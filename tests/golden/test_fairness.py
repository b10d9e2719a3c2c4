"""Group figures against Fairlearn's, for two classes and any number of groups."""

from __future__ import annotations

import pytest
import torch

from sfumato.statistics import groups

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
