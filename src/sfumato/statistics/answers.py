"""What a classifier answers to real held-out images: its logits, and how right and how sure it is by class."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot

from sfumato.errors import DataError, UsageError
from sfumato.statistics.same_kind import known
from sfumato.values import Images, Reference

Answering = Callable[[Tensor], Tensor]  # pixels (n, c, h, w) uint8 in, logits (n, k) out


def held_out_logits(classifier: Answering, real: Reference) -> tuple[Images, Tensor]:
    """The held-out images of a known class, and the classifier's logits of them."""
    images = known(real.held_out)
    if not len(images):
        raise DataError("Expected held-out images of a known class, got none.")
    return images, logits_of(classifier, images.pixels, classes=len(images.classes))


def logits_of(classifier: Answering, pixels: Tensor, *, classes: int) -> Tensor:  # (n, k)
    """The classifier's logits; one of another number of classes is refused, and so are logits that are no numbers."""
    logits = classifier(pixels)
    if tuple(logits.shape) != (len(pixels), classes):
        raise UsageError(
            f"Expected logits of {classes} classes for {len(pixels)} images, got the shape {tuple(logits.shape)}.",
            fix="give the data that the classifier was trained on, with its classes",
        )
    if not logits.isfinite().all():
        raise DataError("Expected finite logits, got some that are not.", fix="train the classifier again")
    return logits


def confusions(predicted: Tensor, labels: Tensor, *, classes: int) -> Tensor:
    """How many images of each class (rows) are given each class (columns); (k, k)."""
    return torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def class_accuracies(counts: Tensor) -> Tensor:  # (k, k) -> (k,)
    """The share of each class's images that are given it; nan where there are none."""
    return counts.diagonal().double() / counts.sum(1)


def binomial_error(share: float, count: int) -> float:
    """The standard error of a share of so many independent images."""
    return math.sqrt(share * (1 - share) / count)


def negative_log_likelihoods(logits: Tensor, labels: Tensor) -> Tensor:  # (n, k), (n,) -> (n,)
    return -log_softmax(logits.double(), 1).gather(1, labels[:, None]).squeeze(1)


def brier_scores(logits: Tensor, labels: Tensor) -> Tensor:  # (n, k), (n,) -> (n,)
    """The squared distance between the probabilities and the truth (Brier 1950): from 0 to 2."""
    return (logits.double().softmax(1) - one_hot(labels, logits.shape[1])).square().sum(1)


def equal_mass_calibration_error(sure: Tensor, right: Tensor, *, bins: int) -> Tensor:
    """|confidence - accuracy|, averaged over bins of as many images each, in the order of confidence; a scalar.

    Bins of equal width leave most bins of a confident classifier nearly empty (Nixon et al. 2019).
    """
    order = sure.argsort(stable=True)
    gaps = (right.double() - sure.double())[order].tensor_split(min(bins, len(order)))
    return torch.stack([gap.sum().abs() for gap in gaps]).sum() / len(order)
