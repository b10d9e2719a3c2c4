"""Does a classifier that was trained on the release read the class from colour, or from a group? (Model bias.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.statistics import groups as by_group
from sfumato.statistics.panels import student_answers
from sfumato.statistics.predicted_classes import BiasTest
from sfumato.statistics.same_kind import check_classes, check_shape, known
from sfumato.values import Images, Reference, Score


@dataclass(frozen=True)
class ModelBias(Metric):
    """Bias of Wang et al. (2020) on real held-out images: 0 where groups are spread alike, at most .5.

    Without groups, every held-out image in colour is judged twice, as it is and in grey. With groups, a classifier that
    is always right has the bias of the labels, which the details give. The amplification is what a release adds to the
    bias of a classifier that was trained on the real images.
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
        tested = BiasTest.of(real)
        answers = {"release": self._answers(synthetic, tested)}
        if real.test is not None:
            answers["real"] = self._answers(known(real.train), tested)
        values = {who: tested.biases(given) for who, given in answers.items()}
        of_bias, of_amplification = self._errors(tested, answers)
        parts: tuple[Score, ...] = ()
        if "real" in answers:
            difference = values["release"] - values["real"]
            parts = (self._score("model-bias-amplification", difference, of_amplification),)
        whole = self._score("model-bias", values["release"], of_bias)
        details = {**tested.details(answers), "values": {who: given.tolist() for who, given in values.items()}}
        details["test_split"] = real.test is not None
        return Score("model-bias", whole.value, whole.standard_error, self.higher_is_better, self.seeds, details, parts)

    def _answers(self, images: Images, tested: BiasTest) -> Tensor:
        return student_answers(  # (seeds, v, n)
            images, self.arch, tested.views, seeds=self.seeds, images_seen=self.images_seen, what="model-bias"
        )

    def _score(self, name: str, values: Tensor, resampled: float) -> Score:
        return Score(name, float(values.mean()), by_group.error_of_mean(values, resampled), False, self.seeds)

    def _errors(self, tested: BiasTest, answers: dict[str, Tensor]) -> list[float]:
        """Of the bias and of its amplification, on the same images for both classifiers."""

        def figures(rows: Tensor) -> Tensor:
            ours = tested.biases(answers["release"], rows).mean()
            theirs = tested.biases(answers["real"], rows).mean() if "real" in answers else ours
            return torch.stack([ours, ours - theirs])

        draw = torch.Generator().manual_seed(self.seeds[0])
        return by_group.bootstrap_errors(figures, len(tested.labels), resamples=self.resamples, draw=draw)
