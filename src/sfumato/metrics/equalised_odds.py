"""Does a classifier that was trained on the release treat groups of real images alike (equalised odds)?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.statistics import groups as by_group
from sfumato.statistics.grouped_images import DEFINITION, GroupedImages
from sfumato.statistics.panels import student_answers
from sfumato.statistics.same_kind import check_classes, check_shape, known
from sfumato.values import Images, Reference, Score

# Each figure of one tally, and whether more of it is better.
FIGURES = (
    ("equalised-odds", by_group.equalised_odds, False),
    ("demographic-parity", by_group.demographic_parity, False),
    ("accuracy-gap", by_group.accuracy_gap, False),
    ("worst-group-accuracy", by_group.worst_accuracy, True),
)
_COMPUTED = [figure for _, figure, _ in FIGURES]


@dataclass(frozen=True)
class EqualisedOdds(Metric):
    """Equalised odds difference (Hardt, Price and Srebro 2016) on real held-out images; 0: equal rates in all groups.

    Where there is a test split, classifiers that were trained on the real images are scored too, which shows what
    the release adds to the unfairness of the data. A largest gap is above 0 by chance alone, and more so for
    smaller groups: `by_chance` is its mean when groups are shuffled among the images of each class.
    """

    judges: ClassVar = "fairness"
    higher_is_better: ClassVar[bool] = False

    seeds: tuple[int, ...] = (0, 1)
    images_seen: int = 60_000  # bound on the work of one classifier
    arch: str = "small-cnn"
    resamples: int = 200  # of the bootstrap

    def __call__(self, synthetic: Images, real: Reference) -> Score:
        check_classes(synthetic, real.held_out)
        check_shape(synthetic, real.held_out)
        tested = GroupedImages.of(real)
        answers = {"release": self._answers(synthetic, tested)}
        if real.test is not None:
            answers["real"] = self._answers(known(real.train), tested)
        values = {who: tested.figures(given, _COMPUTED) for who, given in answers.items()}  # (seeds, figures)
        errors = self._errors(tested, answers)
        scores = [
            self._score(name, values["release"][:, i], errors[i], better=better)
            for i, (name, _, better) in enumerate(FIGURES)
        ]
        details, parts = self._details(tested, answers, values), scores[1:]
        if "real" in answers:
            difference = values["release"][:, 0] - values["real"][:, 0]
            parts.append(self._score("equalised-odds-amplification", difference, errors[-1]))
        return Score(
            "equalised-odds",
            scores[0].value,
            scores[0].standard_error,
            self.higher_is_better,
            self.seeds,
            {**details, "test_split": real.test is not None},
            tuple(parts),
        )

    def _answers(self, images: Images, tested: GroupedImages) -> Tensor:
        tests = (tested.images.pixels,)
        answers = student_answers(
            images, self.arch, tests, seeds=self.seeds, images_seen=self.images_seen, what="equalised-odds"
        )
        return answers.squeeze(1)  # (seeds, n)

    def _score(self, name: str, values: Tensor, resampled: float, *, better: bool = False) -> Score:
        error = by_group.error_of_mean(values, resampled)
        return Score(name, float(values.mean()), error, better, self.seeds)

    def _errors(self, tested: GroupedImages, answers: dict[str, Tensor]) -> list[float]:
        """Of each figure, and of the amplification of the first one, with the same resamples for both classifiers."""

        def figures(rows: Tensor) -> Tensor:
            ours = tested.figures(answers["release"], _COMPUTED, rows).mean(0)
            theirs = tested.figures(answers["real"], _COMPUTED, rows).mean(0) if "real" in answers else ours
            return torch.cat([ours, ours[:1] - theirs[:1]])

        draw = torch.Generator().manual_seed(self.seeds[0])
        return by_group.bootstrap_errors(figures, len(tested.images), resamples=self.resamples, draw=draw)

    def _details(self, tested: GroupedImages, answers: dict[str, Tensor], values: dict[str, Tensor]) -> dict[str, Any]:
        chance = tested.by_chance(answers["release"], _COMPUTED, seed=self.seeds[0])
        by_classifier = {
            who: {
                "figures": {name: values[who][:, i].tolist() for i, (name, _, _) in enumerate(FIGURES)},
                "by_group": tested.table(answers[who]),
            }
            for who in answers
        }
        return {
            "definition": DEFINITION,
            "by_chance": dict(zip((name for name, _, _ in FIGURES), chance, strict=True)),
            "left_out": tested.left_out(),
            "release": by_classifier["release"],
            "real": by_classifier.get(
                "real", "not trained: without a test split it would be judged on what it was trained on"
            ),
        }
