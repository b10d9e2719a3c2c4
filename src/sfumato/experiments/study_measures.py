"""What is measured of one classifier of a study: accuracy, four attacks, bias, and the three in one number."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sfumato.errors import DataError
from sfumato.experiments.study_data import Material
from sfumato.judging.exposure import expose_trained, membership_probability, run_attacks
from sfumato.judging.harmonic import harmonic_score
from sfumato.judging.memorisation import Checkpoint, MemorisationTracker, marks
from sfumato.statistics.groups import prediction_bias, tally
from sfumato.statistics.outputs import log_probability
from sfumato.statistics.roc import area, rate_at
from sfumato.training.student import outputs
from sfumato.values import Exposed, Images, Score

ATTACKS = ("loss-threshold", "modified-entropy", "attack-mlp", "attack-forest")  # learnt ones judge across folds
FALSE_ALARMS = 0.001


def measure(network: nn.Module, material: Material, candidates: int, *, seed: int) -> dict[str, float]:
    """Every number of a classifier by its name; `auc` and `tpr` are those of the strongest attack."""
    found = accuracy_and_bias(network, material)
    members, others = lineup(material, candidates, seed=seed)
    exposed = expose_trained(network, members, others)
    scores, left_out = run_attacks(exposed, ATTACKS)
    if left_out:
        raise DataError(f"Expected all attacks to apply; {'; '.join(left_out.values())}")
    for name, score in scores.items():
        sides = score[exposed.members], score[~exposed.members]
        found[f"auc-{name}"] = area(*sides)[0]
        found[f"tpr-{name}"] = rate_at(*sides, false_alarms=FALSE_ALARMS).value
    found["auc"] = max(found[f"auc-{name}"] for name in ATTACKS)
    found["tpr"] = max(found[f"tpr-{name}"] for name in ATTACKS)
    terms = [Score(name, found[name], None, name == "accuracy") for name in ("accuracy", "auc", "bias")]
    found["harmonic"] = harmonic_score(*terms).value
    return found


def accuracy_and_bias(network: nn.Module, material: Material) -> dict[str, float]:
    test = material.test
    predicted = outputs(network, test.pixels).argmax(1)
    counts = tally(
        predicted, test.labels, material.groups, names=len(material.names), classes=len(test.classes)
    )  # (g, k, k)
    right = (predicted == test.labels)[material.counted]
    return {"accuracy": right.double().mean().item(), "bias": prediction_bias(counts)}


def lineup(material: Material, candidates: int, *, seed: int) -> tuple[Images, Images]:
    """Members and others, at most so many of each, and as many of each class among both.

    A classifier that has learnt only how frequent the classes are would otherwise seem to know its training records,
    wherever one class happens to be more frequent among the members than among the others.
    """
    train, others = material.train, material.others
    chosen: list[tuple[Tensor, Tensor]] = []
    for label in range(len(train.classes)):
        rows = [_shuffled((images.labels == label).nonzero()[:, 0], seed) for images in (train, others)]
        count = min(candidates // len(train.classes), *map(len, rows))
        chosen.append((rows[0][:count], rows[1][:count]))
    members, rest = (torch.cat(side) for side in zip(*chosen, strict=True))
    return train.rows(members), others.rows(rest)


def _shuffled(rows: Tensor, seed: int) -> Tensor:
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]


def tracker_of(material: Material, candidates: int) -> MemorisationTracker:
    """Follows a training, and one record: the first member of the first class (of CIFAR-10: an airplane).

    It is the same record in all runs on the same data.
    """
    members, others = lineup(material, candidates, seed=0)
    first = (members.labels == members.labels.min()).nonzero()[0].item()
    return MemorisationTracker(members, others, chosen=[int(first)])


def rows_of(checkpoints: list[Checkpoint]) -> list[dict[str, float]]:
    """The curves of a figure; the last row is the trained classifier."""
    return [
        {
            "done": at.done,
            "training accuracy": at.train_accuracy,
            "test accuracy": at.test_accuracy,
            "validation loss": at.test_loss,
            "auc": at.auc,
            "membership probability": at.membership[0],
        }
        for at in checkpoints
    ]


def before_overfitting(rows: list[dict[str, float]]) -> dict[str, float]:
    """The last checkpoint that is not over-fitted."""
    over_fit = marks([row["validation loss"] for row in rows]).over_fit
    return rows[-1 if over_fit is None else over_fit - 1]


def riskiest(network: nn.Module, train: Images, others: Images, count: int) -> tuple[Tensor, float]:
    """Which training records have the highest membership probability, and the mean of it over these.

    Of equals those with the smaller loss come first. A removal of such records depends on private data without any
    bound: a model that was trained on the rest has no guarantee.
    """
    exposed: Exposed = expose_trained(network, train, others)
    inside = exposed.members
    risk = membership_probability(exposed)[inside]
    confidence = log_probability(exposed.logits, exposed.labels)[inside]
    by_confidence = confidence.argsort(descending=True, stable=True)
    order = by_confidence[risk[by_confidence].argsort(descending=True, stable=True)]
    return order[:count], risk[order[:count]].mean().item()


def mean_and_error(values: list[float]) -> tuple[float, float | None]:
    """The mean over seeds and its standard error; one seed has none."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
