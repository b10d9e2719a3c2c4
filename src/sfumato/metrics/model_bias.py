"""Does a classifier that was trained on the release read the class from colour, or from a group? (Model bias.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.contracts import Metric
from sfumato.errors import NotApplicable
from sfumato.statistics import groups as by_group
from sfumato.statistics.panels import student_answers
from sfumato.statistics.same_kind import check_classes, check_shape, known
from sfumato.values import Images, Reference, Score

COLOUR = (
    "mean over classes of max(grey, colour) / (grey + colour) - 0.5, of the counts of real images predicted as the "
    "class in grey and in colour; classes that are never predicted are left out"
)
GROUPS = (
    "mean over classes of (max s / sum s - 1/G) / (2 - 2/G), s the share of each of G groups that is predicted as "
    "the class; classes that are never predicted are left out"
)
VIEWS = ("colour", "grey")


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
        tested = _in_two_views(real) if real.groups is None else _in_groups(real, real.groups.names)
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

    def _answers(self, images: Images, tested: _Tested) -> Tensor:
        return student_answers(  # (seeds, v, n)
            images, self.arch, tested.views, seeds=self.seeds, images_seen=self.images_seen, what="model-bias"
        )

    def _score(self, name: str, values: Tensor, resampled: float) -> Score:
        return Score(name, float(values.mean()), by_group.error_of_mean(values, resampled), False, self.seeds)

    def _errors(self, tested: _Tested, answers: dict[str, Tensor]) -> list[float]:
        """Of the bias and of its amplification, on the same images for both classifiers."""

        def figures(rows: Tensor) -> Tensor:
            ours = tested.biases(answers["release"], rows).mean()
            theirs = tested.biases(answers["real"], rows).mean() if "real" in answers else ours
            return torch.stack([ours, ours - theirs])

        draw = torch.Generator().manual_seed(self.seeds[0])
        return by_group.bootstrap_errors(figures, len(tested.labels), resamples=self.resamples, draw=draw)


@dataclass(frozen=True)
class _Tested:
    """Held-out images in v views (as they are, and perhaps in grey), and the group that each view of each is in."""

    views: tuple[Tensor, ...]  # v times uint8 (n, c, h, w)
    labels: Tensor  # (n,)
    groups: Tensor  # (v, n)
    names: tuple[str, ...]
    classes: tuple[str, ...]
    formula: str
    left_out: tuple[str, ...]

    def biases(self, answers: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:  # (seeds, v, n) -> (seeds,)
        counts = [self._tally(answer, rows) for answer in answers]
        return torch.tensor([by_group.prediction_bias(c) for c in counts], dtype=torch.float64)

    def details(self, answers: dict[str, Tensor]) -> dict[str, Any]:
        truth = self.labels.expand(len(self.views), -1)
        given = {who: torch.stack([self._tally(a) for a in answer]).mean(0) for who, answer in answers.items()}
        never = [name for name, count in zip(self.classes, given["release"].sum((0, 1)), strict=True) if not count]
        return {
            "formula": self.formula,
            "bias_of_the_labels": by_group.prediction_bias(self._tally(truth)),
            "left_out": [*self.left_out, *(f"class {name}: never predicted" for name in never)],
            **{who: by_group.table(mean, names=self.names, classes=self.classes) for who, mean in given.items()},
        }

    def _tally(self, answers: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:  # (v, n) -> (g, k, k)
        predicted, groups = answers[:, rows].flatten(), self.groups[:, rows].flatten()
        labels = self.labels[rows].repeat(len(self.views))
        return by_group.tally(predicted, labels, groups, names=len(self.names), classes=len(self.classes))


def grey(pixels: Tensor) -> Tensor:
    """The luma of ITU-R BT.601 in all three channels, rounded as image libraries do it: in 16-bit fractions."""
    red, green, blue = pixels.int().unbind(1)
    luma = (19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16
    return luma.to(torch.uint8)[:, None].expand_as(pixels).contiguous()


def _in_two_views(real: Reference) -> _Tested:
    held_out = known(real.held_out)
    if held_out.pixels.shape[1] != 3:
        raise NotApplicable(
            "Expected images in colour, or groups of the real held-out images; got neither.",
            fix="name the column with --group",
        )
    coloured = (held_out.pixels != held_out.pixels[:, :1]).flatten(1).any(1)
    if not coloured.any():
        raise NotApplicable("Expected held-out images in colour, got three equal channels in each.")
    pixels, labels = held_out.pixels[coloured], held_out.labels[coloured]
    groups = torch.arange(2)[:, None].expand(2, len(labels))
    grey_already = int((~coloured).sum())
    left_out = (f"{grey_already} held-out images that have no colour to lose",) if grey_already else ()
    return _Tested((pixels, grey(pixels)), labels, groups, VIEWS, held_out.classes, COLOUR, left_out)


def _in_groups(real: Reference, names: tuple[str, ...]) -> _Tested:
    held_out, groups, left_out = by_group.held_out_members(real)
    return _Tested((held_out.pixels,), held_out.labels, groups[None], names, held_out.classes, GROUPS, tuple(left_out))
