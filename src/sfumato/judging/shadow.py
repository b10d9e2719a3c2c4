"""LiRA with shadow releases (Carlini et al. 2022): the method again and again, with and without each candidate."""

from __future__ import annotations

import ast
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato import contracts
from sfumato.contracts import Synthesizer
from sfumato.errors import NotApplicable, UsageError
from sfumato.privacy import Budget, Ledger, PrivateImages
from sfumato.progress import track
from sfumato.statistics.distances import to_nearest
from sfumato.values import Images, Reference, Release, Spec

SHADOWED = "shadow-lira"
MOST_OTHERS = 2_000  # training records beside the candidates that a shadow is fitted on
MOST_RELEASED = 5_000  # images of a release that are looked at
CLOSEST = 1e-3  # the distance that counts as a copy: logarithms need one above zero
LIMIT = (
    "shadow releases were fitted on real records outside the release's ledger; nothing of them is kept, "
    "and what they show is for the lab alone"
)


@dataclass(frozen=True, slots=True)
class Shadowed:
    """Scores of candidates, higher for likelier members, and how they came about."""

    members: Tensor  # (n,)
    others: Tensor  # (n,)
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Records:
    """Real images as a method's source."""

    pixels: Tensor
    labels: Tensor
    spec: Spec
    name: str = "shadow"

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for start in range(0, len(self.labels), 1_000):
            yield self.pixels[start : start + 1_000].numpy(), self.labels[start : start + 1_000].numpy()


def shadow_lira(
    release: Release,
    real: Reference,
    *,
    shadows: int = 16,
    candidates: int = 200,
    seconds: float = 1_200.0,
    seed: int = 0,
) -> Shadowed:
    """Score so many members and as many others by shadow releases; NotApplicable where that cannot be, or takes longer.

    A shadow's pool is every second candidate, by lot, and other training records; each candidate is in exactly
    half of the pools. A candidate's statistic is minus the log distance to the nearest released image.
    """
    if real.test is None:
        raise NotApplicable("Expected a data set with a test split, because shadows need records that are no members.")
    if shadows < 4 or shadows % 2:
        raise UsageError(f"Expected an even number of shadows from 4 on, got {shadows}.")
    draw = torch.Generator().manual_seed(seed)
    count = min(candidates, len(real.test), len(real.train) // 2)
    order = torch.randperm(len(real.train), generator=draw)
    outside = torch.randperm(len(real.test), generator=draw)[:count]
    suspects = _joined(real.train, order[:count], real.test, outside)
    rest = order[count : count + MOST_OTHERS]
    spec = replace(_spec(release), count=count + len(rest))
    synthesizer, budget = _method(release, spec)
    _refuse_long_work(synthesizer, spec, real.public, shadows=shadows, seconds=seconds)
    inside = torch.stack([torch.randperm(shadows, generator=draw) < shadows // 2 for _ in range(2 * count)], dim=1)
    seen = []
    for shadow in track(range(shadows), what="shadow releases", total=shadows):
        pool = _joined(suspects, inside[shadow].nonzero()[:, 0], real.train, rest)
        records = _Records(pool.pixels, pool.labels, replace(spec, count=len(pool)))
        made = _fitted(synthesizer, budget, records, real.public, count=min(MOST_RELEASED, len(release.images)))
        seen.append(_statistics(suspects, made))
    chosen = torch.randperm(len(release.images), generator=draw)[:MOST_RELEASED]
    target = _statistics(suspects, _joined(release.images, chosen, release.images, chosen[:0]))
    scores = likelihood_ratios(target, torch.stack(seen), inside)
    details = {
        "shadows": shadows,
        "records_of_a_shadow": spec.count,
        "records_of_the_release": _spec(release).count,
        "limit": LIMIT,
    }
    return Shadowed(scores[:count], scores[count:], details)


def likelihood_ratios(target: Tensor, seen: Tensor, inside: Tensor) -> Tensor:
    """For each candidate the log of N(target; in) / N(target; out), from statistics (s, n) of shadows.

    Means are each candidate's own. Spreads are pooled over all, which is steadier with few shadows (ibid., Sec. VI).
    """
    terms = []
    for members in (inside, ~inside):
        weights = members.double()
        means = (seen * weights).sum(0) / weights.sum(0)
        freedom = (weights.sum(0) - 1).sum()
        variance = ((seen - means).square() * weights).sum() / freedom + 1e-12
        terms.append(-(target - means).square() / (2 * variance) - variance.log() / 2)
    return terms[0] - terms[1]


def _statistics(suspects: Images, made: Images) -> Tensor:
    """Closeness of each candidate to a release, less what all candidates share: shadows see fewer records."""
    closeness = -to_nearest(suspects.pixels, made.unit().flatten(1)).clamp(min=CLOSEST).log()
    return closeness - closeness.median()


def _method(release: Release, spec: Spec) -> tuple[Synthesizer, Budget]:
    """The method with the hyperparameters and the budget that the certificate states."""
    told, asked = release.certificate["method"], release.certificate["budget"]
    budget = Budget(math.inf if asked["epsilon"] is None else asked["epsilon"], asked["delta"])
    try:
        synthesizer = contracts.find("methods", told["name"]).for_task(spec, budget)
        known = {f.name: getattr(synthesizer, f.name) for f in fields(synthesizer)}
        stated = {
            name: ast.literal_eval(value) if isinstance(known[name], tuple) else value
            for name, value in told["hyperparameters"].items()
        }
        return replace(synthesizer, **stated), budget
    except (UsageError, KeyError, TypeError, ValueError, SyntaxError) as error:
        raise NotApplicable(f"Expected a method and hyperparameters that this version knows, got {error}.") from error


def _refuse_long_work(
    synthesizer: Synthesizer, spec: Spec, public: Images | None, *, shadows: int, seconds: float
) -> None:
    if synthesizer.public_images == "needed" and public is None:
        raise NotApplicable("Expected the public images that the release was made from, got none.")
    needed = shadows * synthesizer.seconds(spec)
    if needed > seconds:
        raise NotApplicable(f"Expected {shadows} shadow releases in {seconds:.0f} s; they would take {needed:.0f} s.")


def _fitted(
    synthesizer: Synthesizer, budget: Budget, records: _Records, public: Images | None, *, count: int
) -> Images:
    """One shadow release; its ledger and its working copies go when it is made."""
    with tempfile.TemporaryDirectory(prefix="sfumato-shadow-") as folder:
        ledger = Ledger(budget, Path(folder) / "ledger.jsonl")
        try:
            private = PrivateImages.seal(records, ledger, folder=Path(folder))
            try:
                sampler = synthesizer.fit(private, public)
            finally:
                private.close()
        finally:
            ledger.close()
    return sampler(torch.arange(count) % len(records.spec.classes))


def _spec(release: Release) -> Spec:
    public = release.certificate["public"]
    return Spec(public["count"], public["channels"], public["height"], public["width"], tuple(public["classes"]))


def _joined(first: Images, rows: Tensor, second: Images, others: Tensor) -> Images:
    """Some rows of one set, then some of another."""
    pixels = torch.cat([first.pixels[rows], second.pixels[others]])
    return Images(pixels, torch.cat([first.labels[rows], second.labels[others]]), first.classes)
