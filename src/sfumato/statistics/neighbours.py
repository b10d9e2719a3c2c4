"""All pairs of two sets of features: whose neighbourhoods overlap, and how alike the sets are under a kernel."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from sfumato.errors import UsageError
from sfumato.statistics.features import compared
from sfumato.values import Images, Score

CHUNK = 1000  # rows of a matrix of pairs at a time: 40 MB for ten thousand columns
USUAL = (3, 5)  # neighbours, of precision and recall and of density and coverage; one pass serves both

STANDARD_ERRORS = {  # what each figure's standard error is taken over
    "precise": "over synthetic images, with the neighbourhoods of the real ones held fixed",
    "density": "over synthetic images, with the neighbourhoods of the real ones held fixed",
    "recalled": "over real images, with the neighbourhoods of the synthetic ones held fixed",
    "covered": "over real images, with the synthetic ones held fixed",
}


class Overlap(NamedTuple):
    """For each image: does it lie in a neighbourhood of the other side?"""

    precise: Tensor  # bool (synthetic,): within the k-th neighbour of some real image
    density: Tensor  # float (synthetic,): within how many of the real images' neighbourhoods, over k
    recalled: Tensor  # bool (real,): within the k-th neighbour of some synthetic image
    covered: Tensor  # bool (real,): a synthetic image lies in its neighbourhood


def overlap(synthetic: Tensor, real: Tensor, *, neighbours: int) -> Overlap:
    """Kynkaanniemi et al. (2019) and Naeem et al. (2020); the k-th neighbour is counted beside the image itself.

    Cached for as long as both sets of features exist.
    """
    fewest = min(len(synthetic), len(real))
    if not 1 <= neighbours < fewest:
        raise UsageError(f"Expected 1 to {fewest - 1} neighbours, got {neighbours}.")
    found = _OVERLAPS.setdefault(synthetic, WeakIdKeyDictionary()).setdefault(real, {})
    if neighbours not in found:
        wanted = [k for k in {*USUAL, neighbours} if k < fewest and k not in found]
        found.update(_overlaps(synthetic, real, wanted))
    return found[neighbours]


@dataclass(frozen=True)
class NeighbourhoodMetric:
    """What precision, recall, density and coverage share: their settings, and the comparison of neighbourhoods."""

    extractor: str = "auto"
    most: int = 10_000  # images on either side
    neighbours: int = 5  # beside the image itself
    seed: int = 0

    def score_overlap(
        self, name: str, figure: Literal["precise", "density", "recalled", "covered"], synthetic: Images, real: Images
    ) -> Score:
        """The mean of one figure of `Overlap`, with its standard error."""
        fewest = self.neighbours + 1
        both = compared(synthetic, real, self.extractor, most=self.most, seed=self.seed, fewest=fewest)
        found = overlap(both.ours, both.theirs, neighbours=self.neighbours)
        figures = {
            "precise": found.precise,
            "density": found.density,
            "recalled": found.recalled,
            "covered": found.covered,
        }
        values = figures[figure]
        if values.dtype == torch.bool:
            value, error = proportion(values)
        else:
            value, error = values.mean().item(), (values.std() / len(values) ** 0.5).item()
        return both.score(
            name,
            value,
            error,
            higher_is_better=True,
            neighbours=self.neighbours,
            error_is=STANDARD_ERRORS[figure],
        )


# Synthetic features -> real features -> neighbours.
_OVERLAPS: MutableMapping[Tensor, MutableMapping[Tensor, dict[int, Overlap]]] = WeakIdKeyDictionary()


def _overlaps(synthetic: Tensor, real: Tensor, wanted: list[int]) -> dict[int, Overlap]:
    own_radii, real_radii = (_radii(side, max(wanted)) for side in (synthetic, real))  # (n, most), squared
    sums: dict[int, list[Any]] = {k: [[], torch.zeros(len(real), dtype=torch.bool)] for k in wanted}
    nearest = torch.full((len(real),), torch.inf)
    for rows, distances in _distances(synthetic, real):  # (b, real)
        nearest = torch.minimum(nearest, distances.min(0).values)
        for k, (inside, recalled) in sums.items():
            inside.append((distances < real_radii[:, k - 1]).sum(1))
            recalled |= (distances < own_radii[rows, k - 1, None]).any(0)
    made = {}
    for k, (inside, recalled) in sums.items():
        within = torch.cat(inside)
        made[k] = Overlap(within > 0, within / k, recalled, nearest < real_radii[:, k - 1])
    return made


def proportion(having: Tensor) -> tuple[float, float]:
    """The share of True, and its standard error; the error is not zero even where all values are equal."""
    count, images = having.sum().item(), len(having)
    likely = (count + 1) / (images + 2)
    return count / images, (likely * (1 - likely) / images) ** 0.5


def _radii(points: Tensor, most: int) -> Tensor:
    """Squared distances to the first, second, ... neighbour; (n, most)."""
    nearest = [distances.topk(most + 1, dim=1, largest=False).values for _, distances in _distances(points, points)]
    return torch.cat(nearest)[:, 1:]  # the first is the point itself


def _distances(rows: Tensor, columns: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Squared distances, some rows at a time; taken round the columns' mean, where rounding is least."""
    centre = columns.mean(0)
    rows, columns = rows - centre, columns - centre
    lengths = columns.square().sum(1)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        distances = torch.addmm(lengths, part, columns.T, alpha=-2).add_(part.square().sum(1)[:, None])
        yield slice(start, start + CHUNK), distances.clamp_(min=0)


class Discrepancy(NamedTuple):
    """A squared maximum mean discrepancy without bias, and its standard error."""

    value: float
    standard_error: float


def kernel_distance(ours: Tensor, theirs: Tensor, *, subset: int) -> Discrepancy:
    """Squared discrepancy under the cubic kernel (x y / d + 1)^3 (Binkowski et al. 2018), unbiased.

    The sets are cut into disjoint subsets of at least that size, or left whole; the value is the mean over them, and
    the standard error is the jackknife's, each image left out in turn, which is closed-form here.
    """
    pieces = max(1, min(len(ours), len(theirs)) // subset)
    parts = zip(ours.tensor_split(pieces), theirs.tensor_split(pieces), strict=True)
    values, variances = zip(*(_discrepancy(ours, theirs) for ours, theirs in parts), strict=True)
    return Discrepancy(sum(values) / pieces, sum(variances) ** 0.5 / pieces)


def _discrepancy(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The value, and the jackknife's variance."""
    n, m = len(ours), len(theirs)
    own, other = _kernel_sums(ours, ours) - _kernel_diagonal(ours), _kernel_sums(ours, theirs)  # (n,)
    their_own, back = _kernel_sums(theirs, theirs) - _kernel_diagonal(theirs), _kernel_sums(theirs, ours)  # (m,)
    within, without, across = own.sum(), their_own.sum(), other.sum()
    value = within / (n * (n - 1)) + without / (m * (m - 1)) - 2 * across / (n * m)
    variance = torch.zeros((), dtype=torch.float64)
    for sums, crossed, total, size, size_there in ((own, other, within, n, m), (their_own, back, without, m, n)):
        if size > 2:
            left = (total - 2 * sums) / ((size - 1) * (size - 2)) - 2 * (across - crossed) / ((size - 1) * size_there)
            variance += (size - 1) * left.var(correction=0)
    return value.item(), variance.item()


def _kernel_sums(rows: Tensor, columns: Tensor) -> Tensor:
    """Each row's sum over all columns."""
    parts = [_cubic(part @ columns.T, columns.shape[1]).double().sum(1) for part in torch.split(rows, CHUNK)]
    return torch.cat(parts)


def _kernel_diagonal(rows: Tensor) -> Tensor:
    return _cubic(rows.square().sum(1), rows.shape[1]).double()


def _cubic(products: Tensor, dimensions: int) -> Tensor:
    return (products / dimensions + 1) ** 3
