"""How confident a classifier is on each synthetic image, and how varied its classes are; no real image is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.statistics.features import chosen, compared, extractor, logits, refuse_other_kind
from sfumato.training.student import Schedule, outputs, train
from sfumato.values import Images, Reference, Score

DOMAIN = "small-cnn-on-real"  # where the extractor has no classifier: one trained on the real training images


@dataclass(frozen=True)
class InceptionScore(Metric):
    """Salimans et al. (2016): exp of the mean divergence of an image's classes from those of all; 1 is the worst.

    An ImageNet classifier has classes that few data sets contain, so the score of real images is given as well.
    """

    judges: ClassVar = "fidelity"
    higher_is_better: ClassVar[bool] = True

    extractor: str = "auto"  # or "small-cnn-on-real"
    most: int = 10_000  # images
    splits: int = 10
    images_seen: int = 24_000  # in training a classifier of real images, where that is needed
    seed: int = 0

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        name, ours, theirs = self._logits(synthetic, real.train)
        scores = inception_scores(ours, splits=self.splits)
        return Score(
            name=f"inception-score[{name}]",
            value=scores.mean().item(),
            standard_error=(scores.std() / len(scores) ** 0.5).item() if self.splits > 1 else None,
            higher_is_better=self.higher_is_better,
            seeds=(self.seed,),
            details={
                "synthetic_images": len(ours),
                "classes": ours.shape[1],
                "splits": scores.tolist(),
                "of_training_images": inception_scores(theirs, splits=self.splits).mean().item(),
                "bias": "fewer images make it smaller: compare it only at equal numbers of images",
                "standard_error_is": "of the mean over splits",
            },
        )

    def _logits(self, synthetic: Images, real: Images) -> tuple[str, Tensor, Tensor]:
        """The classifier's name, and its logits of synthetic and of training images."""
        if self.extractor != DOMAIN:
            by = extractor(self.extractor)
            if by.head is not None:
                both = compared(synthetic, real, by.name, most=self.most, seed=self.seed, fewest=2 * self.splits)
                return by.name, logits(both.ours, by), logits(both.theirs, by)
        refuse_other_kind(synthetic, real, most=self.most, seed=self.seed, fewest=2 * self.splits)
        rows, their_rows = (chosen(side, most=self.most, seed=self.seed) for side in (synthetic, real))
        known = real.rows(their_rows)
        schedule = Schedule(images_seen=self.images_seen)
        student = train(known, schedule, seed=self.seed, what="inception-score's classifier")
        return DOMAIN, outputs(student, synthetic.pixels[rows]), outputs(student, known.pixels)


def inception_scores(class_logits: Tensor, *, splits: int) -> Tensor:
    """exp E KL(p(y|x) || p(y)) within each split of the logits; (splits,)."""
    scores = []
    for part in class_logits.double().tensor_split(splits):
        each = part.log_softmax(1)
        together = each.logsumexp(0) - torch.tensor(float(len(part))).log()  # of p(y)
        scores.append((each.exp() * (each - together)).sum(1).mean().exp())
    return torch.stack(scores)
