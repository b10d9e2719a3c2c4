"""How a classifier treats groups of images: rates by group and class, the gaps between groups, and their errors.

Everything is counted from a tally: how many images of a group and class were given each class. With more than two
classes each one is taken against the rest, and a gap is the largest over classes. The rates are those of Hardt,
Price and Srebro (2016); the bias of what is predicted is that of Wang et al. (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sfumato.errors import NotApplicable
from sfumato.statistics.same_kind import of_known_class
from sfumato.values import Images, Reference


def held_out_members(real: Reference) -> tuple[Images, Tensor, list[str]]:
    """The held-out images of a known class and group, their groups, and what had to be left out, in words."""
    images, groups = real.held_out, real.held_out_groups
    if real.groups is None or groups is None:
        raise NotApplicable(
            "Expected groups of the real held-out images, got none.", fix="name the column with --group"
        )
    known = of_known_class(images) & (groups >= 0) & (groups < len(real.groups.names))
    present = set(groups[known].tolist())
    if len(present) < 2:
        raise NotApplicable(f"Expected held-out images of at least 2 groups, got {len(present)}.")
    left_out = [f"group {name}: no images" for g, name in enumerate(real.groups.names) if g not in present]
    if not known.all():
        left_out.append(f"{int((~known).sum())} images of no known class or group")
    return images.rows(known), groups[known], left_out


def tally(predicted: Tensor, labels: Tensor, groups: Tensor, *, names: int, classes: int) -> Tensor:
    """Counts by group, true class and predicted class; an image of no known group or class is left out."""
    known = (groups >= 0) & (groups < names) & (labels >= 0) & (labels < classes)
    cell = (groups[known] * classes + labels[known]) * classes + predicted[known]
    return torch.bincount(cell, minlength=names * classes * classes).double().reshape(names, classes, classes)


def accuracy(counts: Tensor) -> Tensor:  # (g, k, k) -> (g,)
    return _share(counts.diagonal(dim1=1, dim2=2).sum(1), counts.sum((1, 2)))


def selection_rate(counts: Tensor) -> Tensor:  # (g, k, k) -> (g, k)
    """The share of a group's images that are given the class, rightly or not."""
    return _share(counts.sum(1), counts.sum((1, 2))[:, None])


def recall(counts: Tensor) -> Tensor:  # (g, k, k) -> (g, k)
    """The share of the images of the class that are given it: the true positive rate."""
    return _share(counts.diagonal(dim1=1, dim2=2), counts.sum(2))


def false_positive_rate(counts: Tensor) -> Tensor:  # (g, k, k) -> (g, k)
    """The share of the images of other classes that are given the class."""
    of_class = counts.sum(2)
    wrongly = counts.sum(1) - counts.diagonal(dim1=1, dim2=2)
    return _share(wrongly, of_class.sum(1, True) - of_class)


def precision(counts: Tensor) -> Tensor:  # (g, k, k) -> (g, k)
    """The share of the images that are given the class which are of it."""
    return _share(counts.diagonal(dim1=1, dim2=2), counts.sum(1))


def gap(rates: Tensor) -> float:
    """The largest difference between two groups, over classes; nan where no class is seen in two groups."""
    rates = rates.reshape(len(rates), -1)  # (g, k) or (g, 1)
    known = ~rates.isnan()
    spread = rates.nan_to_num(-math.inf).amax(0) - rates.nan_to_num(math.inf).amin(0)
    spread = spread[known.sum(0) > 1]
    return float(spread.max()) if len(spread) else math.nan


def demographic_parity(counts: Tensor) -> float:
    """The largest gap in how often a class is given, whatever the truth."""
    return gap(selection_rate(counts))


def equalised_odds(counts: Tensor) -> float:
    """The largest gap in true or in false positive rates."""
    return gap(torch.cat([recall(counts), false_positive_rate(counts)], 1))


def accuracy_gap(counts: Tensor) -> float:
    return gap(accuracy(counts))


def worst_accuracy(counts: Tensor) -> float:
    """The lowest accuracy of a group; nan where no group has an image."""
    known = accuracy(counts)[counts.sum((1, 2)) > 0]
    return float(known.min()) if len(known) else math.nan


def prediction_bias(counts: Tensor) -> float:
    """How unevenly groups are spread over what is predicted: 0 where every class is, .5 where each has one group.

    With s the share of a group's images that are given a class, the mean over classes of max s / sum s, from which
    1/G is taken and which is scaled to end at .5; for two groups of one size it is Wang et al.'s. Classes that are
    never predicted are left out.
    """
    given = selection_rate(counts)[counts.sum((1, 2)) > 0]  # (g, k)
    groups = len(given)
    if groups < 2:
        return math.nan
    given = given[:, given.sum(0) > 0]
    uneven = (given.amax(0) / given.sum(0)).mean() - 1 / groups
    return float(uneven) / (2 * (1 - 1 / groups))


def table(counts: Tensor, *, names: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    """Every count and rate by group and class; None where there is nothing to count."""
    rates = {
        "recall": recall,
        "false_positive_rate": false_positive_rate,
        "precision": precision,
        "selection_rate": selection_rate,
    }
    computed = {name: rate(counts) for name, rate in rates.items()}
    of_group, of_class, given = accuracy(counts), counts.sum(2), counts.sum(1)
    return {
        group: {
            "images": int(of_class[g].sum()),
            "accuracy": _plain(of_group[g]),
            "classes": {
                name: {"images": int(of_class[g, c]), "predicted": float(given[g, c])}
                | {rate: _plain(values[g, c]) for rate, values in computed.items()}
                for c, name in enumerate(classes)
            },
        }
        for g, group in enumerate(names)
    }


def absent_classes(counts: Tensor, *, names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """The classes for which no gap can be computed, for a group that has images of others."""
    return [
        f"group {group}: no images of class {name}"
        for group, of_class in zip(names, counts.sum(2), strict=True)
        for name, count in zip(classes, of_class, strict=True)
        if of_class.any() and not count
    ]


def bootstrap_errors(
    statistics: Callable[[Tensor], Tensor], count: int, *, resamples: int, draw: torch.Generator
) -> list[float]:
    """Standard errors of statistics (m,) of images, by number, when the images are drawn anew with replacement."""
    drawn = torch.stack(
        [statistics(torch.randint(count, (count,), generator=draw)) for _ in range(resamples)]
    )  # (resamples, m)
    return [float(values[~values.isnan()].std()) if (~values.isnan()).sum() > 1 else math.nan for values in drawn.T]


def resampled(counts: Tensor, draw: torch.Generator) -> Tensor:
    """Counts of as many things, drawn with replacement from those that were counted."""
    cells = torch.multinomial(counts.flatten(), int(counts.sum()), replacement=True, generator=draw)
    return torch.bincount(cells, minlength=counts.numel()).to(counts).reshape(counts.shape)


def error_of_mean(values: Tensor, resampled: float) -> float | None:
    """The error of a mean over seeds: their spread, and that of the images which they all were judged on."""
    over_seeds = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return None if math.isnan(resampled) else math.hypot(over_seeds, resampled)


def shuffled_groups(groups: Tensor, labels: Tensor, draw: torch.Generator) -> Tensor:
    """The groups shuffled among the images of each class: a gap that remains is due to chance."""
    order = torch.randperm(len(labels), generator=draw)
    dealt = torch.empty_like(groups)
    dealt[labels.argsort(stable=True)] = groups[order[labels[order].argsort(stable=True)]]
    return dealt


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Part of whole; nan, not a warning or an infinity, where there is no whole."""
    return torch.where(whole > 0, part / whole.where(whole > 0, 1), torch.nan)


def _plain(rate: Tensor) -> float | None:
    return None if rate.isnan() else float(rate)
