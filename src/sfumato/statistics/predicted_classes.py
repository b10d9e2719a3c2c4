"""Which classes are predicted for images in colour and in grey, or for groups of images (bias of Wang et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.errors import NotApplicable
from sfumato.statistics import groups as by_group
from sfumato.statistics.same_kind import known
from sfumato.values import Reference

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
class BiasTest:
    """Held-out images in v views (as they are, and perhaps in grey), and the group that each view of each is in."""

    views: tuple[Tensor, ...]  # v times uint8 (n, c, h, w)
    labels: Tensor  # (n,)
    groups: Tensor  # (v, n)
    names: tuple[str, ...]
    classes: tuple[str, ...]
    formula: str
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, real: Reference) -> BiasTest:
        """By group where the real images have groups; else each image in colour as it is and in grey."""
        return _in_two_views(real) if real.groups is None else _in_groups(real, real.groups.names)

    def biases(self, answers: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:  # (seeds, v, n) -> (seeds,)
        counts = [self._tally(answer, rows) for answer in answers]
        return torch.tensor([by_group.prediction_bias(c) for c in counts], dtype=torch.float64)

    def details(self, answers: Mapping[str, Tensor]) -> dict[str, Any]:
        """Counts and rates by classifier; classes that the first of them never predicts are named."""
        truth = self.labels.expand(len(self.views), -1)
        given = {who: torch.stack([self._tally(a) for a in answer]).mean(0) for who, answer in answers.items()}
        of_first = next(iter(given.values())).sum((0, 1))
        never = [name for name, count in zip(self.classes, of_first, strict=True) if not count]
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


def _in_two_views(real: Reference) -> BiasTest:
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
    return BiasTest((pixels, grey(pixels)), labels, groups, VIEWS, held_out.classes, COLOUR, left_out)


def _in_groups(real: Reference, names: tuple[str, ...]) -> BiasTest:
    held_out, groups, left_out = by_group.held_out_members(real)
    return BiasTest((held_out.pixels,), held_out.labels, groups[None], names, held_out.classes, GROUPS, tuple(left_out))
