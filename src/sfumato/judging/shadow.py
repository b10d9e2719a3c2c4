"""Shadow releases (Carlini et al. 2022): the method is fitted again and again, with and without each candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sfumato.errors import NotApplicable, UsageError
from sfumato.judging.refitting import LIMIT, fitted_again, joined, refuse_long_work, stated_in
from sfumato.progress import track
from sfumato.statistics.distances import to_nearest
from sfumato.values import Images, Reference, Release, Spec

SHADOW_LIRA = "shadow-lira"
CLOSENESS = "closeness"
MOST_OTHERS = 2_000  # training records beside the candidates that a shadow is fitted on
MOST_RELEASED = 5_000  # images of a release that candidates are compared with
CLOSEST = 1e-3  # the distance that counts as a copy: logarithms need one above zero

# From released images and candidates to one number, or one row of numbers, per candidate.
Measure = Callable[[Images, Images], Tensor]


@dataclass(frozen=True, slots=True)
class ShadowScores:
    """Scores of candidates, higher for likelier members, and how they were computed."""

    members: Tensor  # (n,)
    others: Tensor  # (n,)
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShadowStudy:
    """The same measures of the same candidates on the release and on every shadow release."""

    candidates: Images  # members of the release, then as many other records
    members: Tensor  # bool (n,)
    shadow_members: Tensor  # bool (s, n): which candidates each shadow release was fitted on
    target: dict[str, Tensor]  # (n, ...) by the name of the measure
    shadows: dict[str, Tensor]  # (s, n, ...) by the name of the measure
    details: dict[str, Any]


def measure_shadows(
    release: Release,
    real: Reference,
    measures: Mapping[str, Measure],
    *,
    shadows: int = 16,
    candidates: int = 200,
    seconds: float = 1_200.0,
    seed: int = 0,
) -> ShadowStudy:
    """Fit the method on shadow data sets, and take every measure on the release and on each shadow release.

    A shadow data set holds a random half of the candidates and other training records; each candidate is in exactly
    half of them. Raises NotApplicable without a test split, for a method that cannot be run again as the certificate
    describes it, and for one whose shadow releases would take longer than `seconds`.
    """
    if real.test is None:
        raise NotApplicable("Expected a data set with a test split, because shadows need records that are no members.")
    if shadows < 4 or shadows % 2:
        raise UsageError(f"Expected an even number of shadows from 4 on, got {shadows}.")
    draw = torch.Generator().manual_seed(seed)
    count = min(candidates, len(real.test), len(real.train) // 2)
    order = torch.randperm(len(real.train), generator=draw)
    outside = torch.randperm(len(real.test), generator=draw)[:count]
    suspects = joined(real.train, order[:count], real.test, outside)
    rest = order[count : count + MOST_OTHERS]
    spec = replace(_spec(release), count=count + len(rest))
    synthesizer, budget = stated_in(release.certificate, "methods", spec)
    refuse_long_work(synthesizer, spec, real.public, shadows=shadows, seconds=seconds)
    inside = torch.stack([torch.randperm(shadows, generator=draw) < shadows // 2 for _ in range(2 * count)], dim=1)
    measured: dict[str, list[Tensor]] = {name: [] for name in measures}
    for shadow in track(range(shadows), what="shadow releases", total=shadows):
        pool = joined(suspects, inside[shadow].nonzero()[:, 0], real.train, rest)
        sampler = fitted_again(synthesizer, budget, pool, real.public)
        made = sampler(torch.arange(min(MOST_RELEASED, len(release.images))) % len(pool.classes))
        for name, measure in measures.items():
            measured[name].append(measure(made, suspects))
    chosen = torch.randperm(len(release.images), generator=draw)[:MOST_RELEASED]
    target = joined(release.images, chosen, release.images, chosen[:0])
    return ShadowStudy(
        candidates=suspects,
        members=torch.arange(2 * count) < count,
        shadow_members=inside,
        target={name: measure(target, suspects) for name, measure in measures.items()},
        shadows={name: torch.stack(values) for name, values in measured.items()},
        details={
            "shadows": shadows,
            "records_of_a_shadow": spec.count,
            "records_of_the_release": _spec(release).count,
            "limit": LIMIT,
        },
    )


def shadow_lira(
    release: Release,
    real: Reference,
    *,
    shadows: int = 16,
    candidates: int = 200,
    seconds: float = 1_200.0,
    seed: int = 0,
) -> ShadowScores:
    """Score members and as many others by the likelihood ratio of their closeness to the release."""
    study = measure_shadows(
        release,
        real,
        {CLOSENESS: closeness},
        shadows=shadows,
        candidates=candidates,
        seconds=seconds,
        seed=seed,
    )
    return score_closeness(study)


def score_closeness(study: ShadowStudy) -> ShadowScores:
    """Likelihood ratios from a study that measured `closeness`."""
    scores = likelihood_ratios(study.target[CLOSENESS], study.shadows[CLOSENESS], study.shadow_members)
    return ShadowScores(scores[study.members], scores[~study.members], study.details)


def likelihood_ratios(target: Tensor, measured: Tensor, inside: Tensor) -> Tensor:
    """For each candidate the log of N(target; in) / N(target; out), from statistics (s, n) of shadows.

    Means are per candidate. Variances are pooled over candidates, which is more stable with few shadows
    (Carlini et al. 2022, Sec. VI).
    """
    terms = []
    for members in (inside, ~inside):
        weights = members.double()
        means = (measured * weights).sum(0) / weights.sum(0)
        freedom = (weights.sum(0) - 1).sum()
        variance = ((measured - means).square() * weights).sum() / freedom + 1e-12
        terms.append(-(target - means).square() / (2 * variance) - variance.log() / 2)
    return terms[0] - terms[1]


def closeness(released: Images, candidates: Images) -> Tensor:
    """Minus the log distance of each candidate to the nearest released image, less the median over candidates.

    The median is taken off because shadow releases are fitted on fewer records and so are farther from all of them.
    """
    values = -to_nearest(candidates.pixels, released.unit().flatten(1)).clamp(min=CLOSEST).log()
    return values - values.median()


def _spec(release: Release) -> Spec:
    public = release.certificate["public"]
    return Spec(public["count"], public["channels"], public["height"], public["width"], tuple(public["classes"]))
