"""Are all groups still there: each group's share of the release, estimated, against its share of the real images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable
from sfumato.statistics.distances import some
from sfumato.statistics.groups import error_of_mean, resampled
from sfumato.statistics.same_kind import check_shape
from sfumato.training.student import Schedule, predict, train
from sfumato.values import Groups, Images, Reference, Score

METHOD = (
    "an estimate: a release has no group labels, so a classifier that was trained on four fifths of the real training "
    "images predicts them, and the counts are corrected by its confusion matrix on the last fifth (adjusted count, "
    "Forman 2008); valid where the released images of a group look like the real ones"
)
LEAST_SINGULAR_VALUE = 0.2  # the smallest one of the confusion matrix: 1 without errors, 0 by guessing
FEWEST = 20  # real images with a known group


@dataclass(frozen=True)
class GroupRepresentation(Metric):
    """The smallest ratio, over groups, of the estimated share in the release to the share in the real training set.

    1 where every group keeps its share, 0 where one is gone. It is refused where the classifier of groups confuses
    them too much for the estimate to mean anything.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = True

    seeds: tuple[int, ...] = (0, 1)
    images_seen: int = 60_000  # bound on the work of one classifier
    arch: str = "small-cnn"
    resamples: int = 200  # of the bootstrap

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        labelled = _labelled(synthetic, real)
        theirs = torch.bincount(labelled.labels).double()
        counted = [self._count(synthetic, labelled, seed) for seed in self.seeds]
        shares = [_corrected(predicted, confusions) for predicted, confusions in counted]
        if any(share.isnan().any() for share in shares):
            raise NotApplicable(
                "Expected groups that a classifier can tell apart in real images, got ones that it cannot: "
                f"accuracy {_accuracy(counted[0][1]):.2f}."
            )
        kept = torch.stack(shares)  # (seeds, g)
        smallest = _smallest_ratio(kept, theirs)
        error = error_of_mean(smallest, self._error(counted, theirs))
        return Score(
            "group-representation",
            float(smallest.mean()),
            error,
            self.higher_is_better,
            self.seeds,
            _details(labelled, counted, kept, theirs),
        )

    def _count(self, synthetic: Images, labelled: Images, seed: int) -> tuple[Tensor, Tensor]:
        """How many released images are predicted to be of each group, and confusions (true, predicted) on real ones."""
        order = some(len(labelled), len(labelled), torch.Generator().manual_seed(seed))
        unseen, learnt = order[: len(order) // 5], order[len(order) // 5 :]
        schedule = Schedule.short(self.arch, images_seen=self.images_seen)
        student = train(labelled.rows(learnt), schedule, seed=seed, what=f"group-representation, seed {seed}")
        groups = len(labelled.classes)
        predicted = torch.bincount(predict(student, synthetic.pixels), minlength=groups)
        pairs = labelled.labels[unseen] * groups + predict(student, labelled.pixels[unseen])
        confusions = torch.bincount(pairs, minlength=groups**2).reshape(groups, groups)
        return predicted.double(), confusions.double()

    def _error(self, counted: list[tuple[Tensor, Tensor]], theirs: Tensor) -> float:
        """By the bootstrap over released images, real training images and those of the confusion matrix."""
        draw = torch.Generator().manual_seed(self.seeds[0])
        predicted, confusions = counted[0]
        drawn = torch.stack(
            [
                _smallest_ratio(
                    _corrected(resampled(predicted, draw), resampled(confusions, draw)), resampled(theirs, draw)
                )
                for _ in range(self.resamples)
            ]
        )
        return float(drawn[drawn.isfinite()].std())


def _labelled(synthetic: Images, real: Reference) -> Images:
    """The real training images with their group as the label; groups without an image are left out."""
    check_shape(synthetic, real.train)
    groups: Groups | None = real.groups
    if groups is None:
        raise NotApplicable(
            "Expected groups of the real training images, got none.", fix="name the column with --group"
        )
    known = (groups.train >= 0) & (groups.train < len(groups.names))
    present = torch.bincount(groups.train[known], minlength=len(groups.names)).nonzero().flatten()
    labels = torch.searchsorted(present, groups.train[known])  # numbered afresh, without gaps
    if len(present) < 2 or len(labels) < FEWEST:
        raise NotApplicable(
            f"Expected {FEWEST} training images of at least 2 groups, got {len(labels)} of {len(present)}."
        )
    return Images(real.train.pixels[known], labels, tuple(groups.names[g] for g in present.tolist()))


def _corrected(predicted: Tensor, confusions: Tensor) -> Tensor:
    """The shares that give the predicted ones after these confusions; nan where groups are confused too much."""
    rates = confusions / confusions.sum(1, True).clamp(min=1)  # of true groups (rows), which were predicted
    if torch.linalg.svdvals(rates).min() < LEAST_SINGULAR_VALUE:
        return torch.full_like(predicted, torch.nan)
    shares: Tensor = torch.linalg.solve(rates.T, predicted / predicted.sum()).clamp(min=0)
    return shares / shares.sum()


def _smallest_ratio(shares: Tensor, theirs: Tensor) -> Tensor:  # (..., g) -> (...)
    return (shares * theirs.sum() / theirs).amin(-1)


def _accuracy(confusions: Tensor) -> float:
    return float(confusions.diagonal().sum() / confusions.sum())


def _details(labelled: Images, counted: list[tuple[Tensor, Tensor]], kept: Tensor, theirs: Tensor) -> dict[str, Any]:
    names = labelled.classes

    def named(shares: Tensor) -> dict[str, float]:
        return dict(zip(names, shares.tolist(), strict=True))

    return {
        "method": METHOD,
        "worst_group": names[int((kept.mean(0) / theirs).argmin())],
        "real_shares": named(theirs / theirs.sum()),
        "estimated_shares": named(kept.mean(0)),
        "uncorrected_shares": named(torch.stack([predicted / predicted.sum() for predicted, _ in counted]).mean(0)),
        "accuracy_of_the_classifier": [_accuracy(confusions) for _, confusions in counted],
        "confusions": {"true_group_in_rows": list(names), "counts": counted[0][1].int().tolist()},
    }
