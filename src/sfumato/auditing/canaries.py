"""One-run audits: thousands of canaries, each in the data or not by a coin flip, queried through the real core.

Every canary has a bin or a direction of its own, so one run is as many independent experiments as there are
canaries (Steinke, Nasr and Jagielski 2023; scored as Gaussians, after Nasr et al. 2023). How well presence can be
guessed gives a lower bound on epsilon, and the claimed epsilon has to lie above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.auditing.lower_bounds import (
    curve_margin,
    epsilon_lower_bound,
    epsilon_of,
    mu_lower_bound,
    normality,
)
from sfumato.privacy import (
    Budget,
    GaussianSum,
    Ledger,
    Mechanism,
    Noise,
    NoisyChoice,
    PrivateImages,
    Query,
    ShardedAnswers,
    ShardedSums,
    epsilon_pld,
    profile,
)
from sfumato.statistics.intervals import rate_bounds
from sfumato.values import Spec

DELTA = 1e-5
COUNTED, LONG = 20_000, 2_000  # canaries in a histogram, and as rows that must be bounded
STRETCH = 40.0  # how many times longer than the bound such a row is
REFERENCE = (GaussianSum(rounds=4, noise_multiplier=1.0),)  # mu = 2: large enough to be measured within 3 %
MOST_ROUNDS = 48
POINTS = 61  # of the claimed curve
ALPHA = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Claim:
    """What the accountant says of some mechanisms: epsilon at a delta, and the curve around it."""

    epsilon: float
    delta: float
    curve: tuple[tuple[float, ...], tuple[float, ...]]  # epsilons, deltas

    @classmethod
    def of(cls, mechanisms: Sequence[Mechanism], delta: float = DELTA) -> Self:
        epsilon = epsilon_pld(mechanisms, delta)
        points = tuple(float(point) for point in np.linspace(0, 1.2 * epsilon, POINTS))
        return cls(epsilon, delta, (points, tuple(profile(mechanisms, points))))


@dataclass(frozen=True, slots=True)
class CanaryAudit:
    """What was claimed, and what the canaries show at that confidence."""

    canaries: int
    claimed: float
    model_based: float  # lower bound on epsilon if scores are Gaussian
    assumption_free: float  # lower bound on epsilon whatever their law
    margin: float  # above zero: a point of the claimed curve is refuted
    normality: float
    model_counts: bool  # where scores are not Gaussian by construction, the first bound is only reported
    confidence: float

    @property
    def passed(self) -> bool:
        bound = max(self.assumption_free, self.model_based if self.model_counts else 0.0)
        return bound <= self.claimed and self.margin <= 0

    @property
    def detail(self) -> str:
        return (
            f"claimed epsilon {self.claimed:.3f}; at least {self.model_based:.3f} if Gaussian, "
            f"{self.assumption_free:.3f} without assumptions; curve margin {self.margin:+.4f} "
            f"({self.canaries:,} canaries, confidence {self.confidence:g})"
        )

    @property
    def values(self) -> dict[str, Any]:
        """The numbers, as JSON can hold them."""
        values = {name: None if value in (math.inf, -math.inf) else value for name, value in asdict(self).items()}
        return {**values, "passed": self.passed}


class Canaries:
    """A source of one-pixel pictures whose colour is their number; half of them are absent."""

    name = "canaries"

    def __init__(self, count: int, seed: int) -> None:
        self.spec = Spec(count, 3, 1, 1, ("canary",))
        self.present = np.random.default_rng(seed).random(count) < 0.5

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        numbers = np.arange(self.spec.count)
        pixels = np.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=1).astype(np.uint8)
        yield pixels[:, :, None, None], np.where(self.present, 0, -1)


def number_of(image: Tensor) -> Tensor:
    """The number that a canary's colour spells; images may come in batches (..., 3, 1, 1)."""
    digits = image.flatten(-3).mul(255).round().long()
    return digits[..., 0] * 65_536 + digits[..., 1] * 256 + digits[..., 2]


def audit_sums(
    mechanisms: Sequence[GaussianSum],
    *,
    ask: Literal["histogram", "rows"] = "histogram",
    claim: Claim | None = None,
    canaries: int | None = None,
    confidence: float = 0.999,
    noise: Noise | None = None,
    seed: int = 0,
) -> CanaryAudit:
    """All rounds of calibrated sums, asked of canaries; another `noise` is for planting bugs."""
    source = Canaries(canaries or (COUNTED if ask == "histogram" else LONG), seed)
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, DELTA)), noise=noise)
    total, evidence, differences = np.zeros((3, source.spec.count))
    before = None
    for mechanism in mechanisms:
        spread = mechanism.noise_multiplier or 0.0
        query = private.open(mechanism, purpose="canaries")
        for _ in range(mechanism.rounds):
            answer = _asked(query, ask, source.spec.count)
            total += answer * (mechanism.sampling / spread**2)
            evidence += _evidence(answer, mechanism.sampling, spread)
            if before is not None:  # equal noise cancels in the difference of two answers
                differences -= np.exp(-np.square(64 * (answer - before)))
            before = answer
    private.close()
    whole = all(mechanism.sampling == 1 for mechanism in mechanisms)
    scores = _Scores(source.present, total, evidence, differences)
    return scores.audit(claim or Claim.of(mechanisms), confidence, gaussian=whole)


def _asked(query: Query, ask: str, count: int) -> Floats:
    places = torch.arange(count)

    def row(image: Tensor, label: Tensor) -> Tensor:
        return STRETCH * (places == number_of(image)).float()

    if ask == "histogram":
        answer = query.histogram(lambda image, label: number_of(image), bins=count)
    else:
        answer = query(row, l2_bound=1.0)
    return answer.double().numpy()


def _evidence(answer: Floats, rate: float, spread: float) -> Floats:
    """The log-likelihood ratio of one answer: N(1, s^2) with probability `rate`, else N(0, s^2), against N(0, s^2)."""
    ratio = (2 * answer - 1) / (2 * spread**2)
    return ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


@dataclass(frozen=True, slots=True)
class _Scores:
    """Three scores for each canary: a weighted sum of its answers, which is Gaussian; the log-likelihood ratio of
    presence; and how few of its answers equal the previous one, because noise that is used twice cancels there.
    """

    present: NDArray[np.bool_]
    total: Floats
    evidence: Floats
    differences: Floats

    def audit(self, claim: Claim, confidence: float, *, gaussian: bool) -> CanaryAudit:
        totals = self.total[self.present], self.total[~self.present]
        kinds = [(score[self.present], score[~self.present]) for score in (self.evidence, self.differences)]
        error = (1 - confidence) / len(kinds)
        likely = normality(*totals)
        return CanaryAudit(
            canaries=len(self.present),
            claimed=claim.epsilon,
            model_based=epsilon_of(mu_lower_bound(*totals, confidence=confidence), claim.delta),
            assumption_free=max(epsilon_lower_bound(*kind, claim.delta, confidence=1 - error) for kind in kinds),
            margin=max(curve_margin(*kind, *claim.curve, confidence=1 - error) for kind in kinds),
            normality=likely,
            model_counts=gaussian or likely > ALPHA,
            confidence=confidence,
        )


class _Attendance:
    """A teacher that knows which canaries are in its shard and answers so, with the largest row that is allowed."""

    answers_from = ("seen",)

    def __init__(self, count: int) -> None:
        self.count = count

    def begin(self, number: int) -> dict[str, Tensor]:
        return {"seen": torch.zeros(self.count)}

    def learn(
        self, state: dict[str, Tensor], images: Tensor, labels: Tensor, present: Tensor, public: Tensor
    ) -> dict[str, Tensor]:
        return {"seen": state["seen"].scatter_add(0, number_of(images), present.float())}

    def answer(self, state: dict[str, Tensor], query: Tensor) -> Tensor:
        return STRETCH * (2 * state["seen"].gather(0, query.reshape(1)).clamp(max=1) - 1)


def audit_shards(
    mechanism: ShardedAnswers | ShardedSums,
    *,
    claim: Claim | None = None,
    canaries: int = LONG,
    together: bool = False,
    confidence: float = 0.999,
    noise: Noise | None = None,
    seed: int = 0,
) -> CanaryAudit:
    """Questions whether a canary is present, `rounds` of them about each, in as many batches.

    They come one in each batch, or `together` in one: there a teacher that is drawn for a whole batch shows, because it
    gives all answers about a canary or none.
    """
    source = Canaries(canaries, seed)
    private = PrivateImages.seal(source, Ledger(Budget(math.inf, DELTA)), noise=noise)
    paid = replace(mechanism, rounds=mechanism.rounds * canaries)
    teachers = private.teach(paid, purpose="canaries", model=_Attendance(canaries))
    teachers.learn(torch.zeros(1))
    summed = isinstance(mechanism, ShardedSums)
    rate = 1.0 if summed else 1 / mechanism.shards
    others = mechanism.shards - 1 if summed else 0  # teachers without the canary, each of whom answers -1
    spread = mechanism.noise_multiplier or 0.0
    total, evidence = np.zeros((2, canaries))
    order = np.repeat if together else np.tile
    for asked in np.split(order(np.arange(canaries), mechanism.rounds), mechanism.rounds):
        noisy = teachers(torch.from_numpy(asked), l2_bound=1.0).flatten().numpy()
        answer = (noisy + 1 + others) / 2  # in units of the reach
        np.add.at(total, asked, answer)
        np.add.at(evidence, asked, _evidence(answer, rate, spread))
    private.close()
    scores = _Scores(source.present, total, evidence, np.zeros(canaries))
    return scores.audit(claim or Claim.of([mechanism]), confidence, gaussian=summed or mechanism.shards == 1)


class _Voters:
    """A record for the second candidate, and one for the first that may be absent: a tie, or none."""

    name, spec = "voters", Spec(2, 1, 1, 1, ("second", "first"))

    def __init__(self, *, first_votes: bool) -> None:
        self.labels = np.array([0, 1 if first_votes else -1])

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        yield np.zeros((2, 1, 1, 1), np.uint8), self.labels


def audit_choice(
    mechanism: NoisyChoice, *, repeats: int = 1_500, confidence: float = 0.999, noise: Noise | None = None
) -> CanaryAudit:
    """Repeat one choice on two neighbouring data sets: how often the same candidate wins bounds epsilon."""
    scores = torch.eye(mechanism.candidates)[[1, 0]] * STRETCH  # a vote for the second, for the first

    def wins(first_votes: bool) -> int:
        source = _Voters(first_votes=first_votes)
        won = 0
        for _ in range(repeats):
            private = PrivateImages.seal(source, Ledger(Budget(math.inf, DELTA)), noise=noise)
            won += private.choose(mechanism, purpose="canary", score=lambda image, label: scores[label]) == 0
        return won

    here = wins(True)
    gone = wins(False)
    error = (1 - confidence) / 4  # two rates, two directions
    bounds = []
    for likely, unlikely in ((here, gone), (repeats - gone, repeats - here)):
        low, _ = rate_bounds(likely, repeats, error=error)
        _, high = rate_bounds(unlikely, repeats, error=error)
        bounds.append((low, high))
    free = max(0.0, *(math.log(max(low, 1e-300) / high) for low, high in bounds))
    claimed = 1 / (mechanism.noise_multiplier or 1e-9)
    margin = max(low - math.exp(claimed) * high for low, high in bounds)
    return CanaryAudit(2 * repeats, claimed, free, free, margin, 0.0, False, confidence)


def less_noisy(mechanism: GaussianSum) -> GaussianSum:
    """The same question with few rounds, large samples and little noise, where the audit's bound is tighter."""
    rounds = min(mechanism.rounds, 4)
    if mechanism.sampling == 1:
        return replace(mechanism, rounds=rounds, noise_multiplier=math.sqrt(rounds) / 2)
    return replace(mechanism, rounds=rounds, sampling=max(0.5, mechanism.sampling), noise_multiplier=1.0)


def shortened(mechanism: GaussianSum) -> GaussianSum:
    """The method's own question, with at most `MOST_ROUNDS` rounds; the claim is then for these."""
    return replace(mechanism, rounds=min(mechanism.rounds, MOST_ROUNDS))
