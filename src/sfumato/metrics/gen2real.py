"""Accuracy on real images of a small CNN that was trained on synthetic images alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import DataError, UsageError
from sfumato.networks.student import Lesson, predict, train
from sfumato.values import Images, Reference, Score

LOSSES = {
    "labels": "cross-entropy",
    "logits": "squared error on centred logits",
    "kl": "Kullback-Leibler divergence at a temperature",
}


@dataclass(frozen=True)
class Gen2Real(Metric):
    """Nothing is selected on real data: fixed schedule, last step, every seed counts."""

    judges: ClassVar = "utility"
    higher_is_better: ClassVar[bool] = True

    seeds: tuple[int, ...] = (0, 1, 2)
    images_seen: int = 240_000  # bound on the training work for images up to 32 px
    max_epochs: float = 60.0
    batch: int = 256
    logits_images_seen: int = 400_000  # the same two where logits were released: see `Lesson.short`
    logits_batch: int = 64
    peak_rate: float = 4e-3
    weight_decay: float = 0.01

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        held_out = comparable(synthetic, real)
        lesson = self.lesson_for(synthetic)
        answers = [
            predict(train(synthetic, lesson, seed=seed, what=f"gen2real, seed {seed}"), held_out.pixels)
            for seed in self.seeds
        ]
        details = {
            "loss": LOSSES[lesson.loss_for(synthetic)],
            "epochs": lesson.epochs(synthetic),
            "test_split": real.test is not None,
        }
        return accuracy("gen2real-smallcnn", answers, held_out, seeds=self.seeds, details=details)

    def lesson_for(self, synthetic: Images) -> Lesson:
        seen, batch = self.images_seen, self.batch
        if synthetic.logits is not None:
            seen, batch = self.logits_images_seen, self.logits_batch
        return Lesson(rate=self.peak_rate, weight_decay=self.weight_decay, max_epochs=self.max_epochs,
                      images_seen=seen, batch=batch)  # fmt: skip


def accuracy(
    name: str, answers: Sequence[Tensor], held_out: Images, *, seeds: tuple[int, ...], details: dict[str, Any]
) -> Score:
    """The mean accuracy of one set of answers per seed; the worst class is the worst on average."""
    right = torch.stack([answer == held_out.labels for answer in answers]).double()  # (seeds, n)
    of_class = [right[:, held_out.labels == c].mean().item() for c in range(len(held_out.classes))]
    per_class = dict(zip(held_out.classes, of_class, strict=True))
    seen = {c: v for c, v in per_class.items() if not math.isnan(v)}  # nan where the held-out data has none
    accuracies = right.mean(1)
    return Score(
        name=name,
        value=float(accuracies.mean()),
        standard_error=float(accuracies.std() / math.sqrt(len(answers))) if len(answers) > 1 else None,
        higher_is_better=True,
        seeds=seeds,
        details={
            "accuracies": accuracies.tolist(),
            "per_class": {c: seen.get(c) for c in per_class},
            "worst_class": min(seen, key=seen.__getitem__),
            "worst_class_accuracy": min(seen.values()),
            **details,
        },
    )


def comparable(synthetic: Images, real: Reference) -> Images:
    """The real images to judge on: those of a known class, which must be the synthetic images' kind."""
    held_out = _known(real.held_out)
    if synthetic.classes != held_out.classes:
        raise UsageError(f"Expected the classes {held_out.classes}, got {synthetic.classes}.")
    if synthetic.pixels.shape[1:] != held_out.pixels.shape[1:]:
        shapes = tuple(held_out.pixels.shape[1:]), tuple(synthetic.pixels.shape[1:])
        raise UsageError(f"Expected synthetic images of shape {shapes[0]}, got {shapes[1]}.")
    if len(synthetic) < 2 or not len(held_out):
        raise DataError(
            f"Expected at least 2 synthetic and 1 held-out image, got {len(synthetic)} and {len(held_out)}."
        )
    return held_out


def _known(images: Images) -> Images:
    """Without the records whose label is none of the classes: they count as absent."""
    known = (images.labels >= 0) & (images.labels < len(images.classes))
    return Images(images.pixels[known], images.labels[known], images.classes)
