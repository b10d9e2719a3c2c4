"""How well an attribute is predicted, what to compare that with, and results that are degenerate rather than good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.statistics.groups import error_of_mean, recall, tally

ONE_CLASS = 0.95  # of the predictions: above this share a judge is taken to answer one class whatever it sees
COMMON_CLASS = 0.90  # of the truth: answering one class is right where the class is as common as this
CERTAIN = 3.0  # standard errors


@dataclass(frozen=True, slots=True)
class AttributeScore:
    """The predictions of one attribute by several seeds against the truth; shares from 0 to 1."""

    accuracies: tuple[float, ...]  # one for each seed
    accuracy: float  # their mean; nothing is selected
    error: float  # standard error of the mean: over seeds and over test images together
    seed_deviation: float | None  # standard deviation over seeds; None of one seed
    balanced: float  # mean recall of the classes that the test images have
    recalls: dict[str, float | None]  # by class; None of a class without test images
    predicted: dict[str, float]  # share of the predictions that each class gets
    majority: float  # share of the test images that are of the training images' most frequent class
    test_majority: float  # share of the test images' own most frequent class
    chance: float  # 1 / the number of classes that the test images have
    images: int  # different ones that were tested
    constant: tuple[str | None, ...]  # for each seed, the class that it answers whatever it sees; None: it does not


@dataclass(frozen=True, slots=True)
class Difference:
    """One accuracy less another, with the standard error as if the two were independent."""

    value: float
    error: float


def score_attribute(
    predicted: Sequence[Tensor], truth: Sequence[Tensor], trained_on: Tensor, classes: tuple[str, ...], *, images: int
) -> AttributeScore:
    """Predictions and truth, int64 (n,) for each seed; `trained_on` are the labels (m,) that the judges learnt from.

    `images` says how many different ones there are: seeds may be tested on the same images or on others.
    """
    if not images or not len(trained_on):
        raise DataError("Expected at least one image to train on and one to test on, got none.")
    counts = torch.stack([_counts(p, t, len(classes)) for p, t in zip(predicted, truth, strict=True)])  # (s, k, k)
    accuracies = counts.diagonal(dim1=1, dim2=2).sum(1) / counts.sum((1, 2))  # (s,)
    total = counts.sum(0)  # (k, k): true class by predicted class
    accuracy, true, given = float(accuracies.mean()), total.sum(1) / total.sum(), total.sum(0) / total.sum()
    recalls = recall(total[None])[0]
    usual = int(trained_on.bincount(minlength=len(classes)).argmax())
    # The binomial error of rates of all or nothing would be 0; one more image each way keeps it above that.
    smoothed = (accuracy * images + 1) / (images + 2)
    error = error_of_mean(accuracies, math.sqrt(smoothed * (1 - smoothed) / images))
    assert error is not None
    return AttributeScore(
        accuracies=tuple(accuracies.tolist()),
        accuracy=accuracy,
        error=error,
        seed_deviation=float(accuracies.std()) if len(accuracies) > 1 else None,
        balanced=float(recalls[~recalls.isnan()].mean()),
        recalls={n: None if r.isnan() else float(r) for n, r in zip(classes, recalls, strict=True)},
        predicted={n: float(share) for n, share in zip(classes, given, strict=True)},
        majority=float(true[usual]),
        test_majority=float(true.max()),
        chance=1 / int((true > 0).sum()),
        images=images,
        constant=tuple(_constant(one, classes) for one in counts),
    )


def difference(first: AttributeScore, second: AttributeScore) -> Difference:
    return Difference(first.accuracy - second.accuracy, math.hypot(first.error, second.error))


def constant_prediction(score: AttributeScore) -> str | None:
    """What to say of judges that answer one class whatever they see; None where they do not."""
    answered = [name for name in score.constant if name is not None]
    if not answered:
        return None
    return (
        f"{len(answered)} of {len(score.constant)} answer one class ({', '.join(dict.fromkeys(answered))}) for more "
        f"than {100 * ONE_CLASS:.0f} % of the images: the accuracy is that class's frequency. Either nothing of the "
        "attribute can be learnt, or the training failed; compare with the real images"
    )


def collapsed_baseline(real: AttributeScore, released: AttributeScore) -> str | None:
    """What to say of a training on real images that failed, so that nothing can be compared with it; else None."""
    if real.majority - real.accuracy > CERTAIN * real.error:
        return (
            f"the baseline collapsed: judges trained on real images reach {_percent(real.accuracy)}, below the "
            f"majority rate {_percent(real.majority)} by more than {CERTAIN:g} standard "
            "errors; do not compare with it, train it again"
        )
    behind = difference(released, real)
    if behind.value > CERTAIN * behind.error:
        return (
            f"the baseline collapsed: judges trained on real images reach {_percent(real.accuracy)}, "
            f"judges trained on released ones {_percent(released.accuracy)}, better by more than {CERTAIN:g} standard "
            "errors; do not compare with it, train it again"
        )
    return None


def degenerate_head(told: AttributeScore) -> str | None:
    """What to say of a head of the method's own that is worse than answering the most frequent class; else None."""
    if told.majority - told.accuracy <= CERTAIN * told.error:
        return None
    return (
        f"the method's own head reaches {_percent(told.accuracy)}: below the majority rate "
        f"({_percent(told.majority)}) is degenerate, not privacy"
    )


def _counts(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """How many images of each class (row) are given each class (column)."""
    return tally(predicted, truth, torch.zeros_like(truth), names=1, classes=classes)[0]


def _constant(counts: Tensor, classes: tuple[str, ...]) -> str | None:
    given, true = counts.sum(0) / counts.sum(), counts.sum(1) / counts.sum()
    most = int(given.argmax())
    return classes[most] if given[most] > ONE_CLASS and true[most] < COMMON_CLASS else None


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
