"""Held-out images by group, and figures of how classifiers treat the groups: their values, by chance and in tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sfumato.statistics import groups as by_group
from sfumato.statistics.answers import Answering, logits_of
from sfumato.values import Images, Reference, Score

Figure = Callable[[Tensor], float]  # of one tally, as in `groups`
SHUFFLES = 50  # shuffles that show how large a gap is by chance
DEFINITION = "the largest gap between groups in true or false positive rates, over classes (each against the rest)"


@dataclass(frozen=True)
class Judged:
    """A figure with its name, and whether more of it is better."""

    name: str
    figure: Figure
    higher_is_better: bool = False


@dataclass(frozen=True)
class GroupedImages:
    """The held-out images of a known class and group."""

    images: Images
    groups: Tensor
    names: tuple[str, ...]
    left_out_of_test: tuple[str, ...]  # what was left out

    @classmethod
    def of(cls, real: Reference) -> GroupedImages:
        images, groups, left_out_of_test = by_group.held_out_members(real)
        return cls(images, groups, () if real.groups is None else real.groups.names, tuple(left_out_of_test))

    def figures(self, answers: Tensor, which: Sequence[Figure], rows: Tensor | None = None) -> Tensor:
        """Each figure of the answers (seeds, n) to all images or to some rows of them; (seeds, figures)."""
        counts = [self._tally(answer, slice(None) if rows is None else rows) for answer in answers]
        return torch.tensor([[figure(c) for figure in which] for c in counts], dtype=torch.float64)

    def by_chance(self, answers: Tensor, which: Sequence[Figure], *, seed: int) -> list[float]:
        """The mean of each figure when groups are shuffled among the images of each class."""
        draw = torch.Generator().manual_seed(seed)
        shuffled = [self._shuffled_groups(draw).figures(answers, which).mean(0) for _ in range(SHUFFLES)]
        means: list[float] = torch.stack(shuffled).mean(0).tolist()
        return means

    def table(self, answers: Tensor) -> dict[str, Any]:
        """Counts and rates of the mean tally over seeds."""
        counts = torch.stack([self._tally(answer) for answer in answers]).mean(0)
        return by_group.table(counts, names=self.names, classes=self.images.classes)

    def left_out(self) -> list[str]:
        counts = self._tally(self.images.labels)
        return [*self.left_out_of_test, *by_group.absent_classes(counts, names=self.names, classes=self.images.classes)]

    def _shuffled_groups(self, draw: torch.Generator) -> GroupedImages:
        return replace(self, groups=by_group.shuffled_groups(self.groups, self.images.labels, draw))

    def _tally(self, predicted: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        labels, groups = self.images.labels[rows], self.groups[rows]
        return by_group.tally(predicted[rows], labels, groups, names=len(self.names), classes=len(self.images.classes))


def judged_by_group(
    classifier: Answering, real: Reference, figures: Sequence[Judged], *, resamples: int, seed: int
) -> Score:
    """The first figure of one classifier's answers to the held-out images, and the others as its parts.

    Errors are by bootstrap over the images.
    """
    tested = GroupedImages.of(real)
    which = [judged.figure for judged in figures]
    logits = logits_of(classifier, tested.images.pixels, classes=len(tested.images.classes))
    answers = logits.argmax(1)[None]  # (1, n)
    values = tested.figures(answers, which)  # (1, figures)
    errors = by_group.bootstrap_errors(
        lambda rows: tested.figures(answers, which, rows)[0],
        len(tested.images),
        resamples=resamples,
        draw=torch.Generator().manual_seed(seed),
    )
    first, *others = (
        Score(
            judged.name,
            float(values[0, place]),
            by_group.error_of_mean(values[:, place], errors[place]),
            judged.higher_is_better,
            (seed,),
        )
        for place, judged in enumerate(figures)
    )
    chance = tested.by_chance(answers, which, seed=seed)
    details = {
        "by_chance": {judged.name: value for judged, value in zip(figures, chance, strict=True)},
        "by_group": tested.table(answers),
        "left_out": tested.left_out(),
        "test_split": real.test is not None,
    }
    return replace(first, details=details, parts=tuple(others))
