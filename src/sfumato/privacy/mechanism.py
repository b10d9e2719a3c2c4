"""Public descriptions of the questions that may be asked of private data; nothing here touches any."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from sfumato.errors import UsageError

MOST_NOISE = 1e8  # with a larger noise multiplier, a float64 could not hold every integer of the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism(ABC):
    """A question, how often it is asked and how large its noise is.

    `noise_multiplier` is in units of the question's reach (what one record can change); it stays
    None until a ledger has calibrated it, and 0 means no noise and no guarantee. `share` says how
    the mechanisms of one plan divide the budget.

    Guarantee: a description that the accountant could not use (zero rounds, a rate outside (0, 1],
    noise that is negative, not finite or too large to be drawn) cannot be made.
    """

    kind: ClassVar[str]
    rounds: int = 1
    noise_multiplier: float | None = None
    share: float = 1.0
    purpose: str = ""  # what the question is asked for, in plain words; it is published

    def __post_init__(self) -> None:
        if not (isinstance(self.rounds, int) and 1 <= self.rounds <= 10**8):
            raise UsageError(f"Expected rounds between 1 and 100000000, got {self.rounds!r}.")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier <= MOST_NOISE:
            raise UsageError(f"Expected a noise_multiplier from 0 to {MOST_NOISE:g}, got {self.noise_multiplier!r}.")
        if not 0 < self.share < math.inf:
            raise UsageError(f"Expected share > 0, got {self.share!r}.")

    @property
    @abstractmethod
    def unit_noise(self) -> float:
        """The noise multiplier at which all rounds together cost about one unit (mu = 1)."""

    @property
    def most_scale(self) -> float:
        """The largest scale that `with_scale` can take."""
        return MOST_NOISE * math.sqrt(self.share) / self.unit_noise

    def with_scale(self, scale: float) -> Self:
        """The same question with noise so that its cost goes as share / scale^2."""
        return replace(self, noise_multiplier=scale * self.unit_noise / math.sqrt(self.share))

    @property
    def draws(self) -> int:
        """Draws of noise that make up one round (see GaussianSum)."""
        return 1

    @property
    def mark_block(self) -> int:
        """How many draws a ledger marks as begun at a time; a crash loses at most these."""
        return 1

    @abstractmethod
    def _own_fields(self) -> dict[str, Any]: ...

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a ledger and a certificate."""
        return {
            "kind": self.kind,
            "rounds": self.rounds,
            "noise_multiplier": self.noise_multiplier,
            **self._own_fields(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSum(Mechanism):
    """Each round: draw every record with rate `sampling`, bound its row, sum, add Gaussian noise.

    A round over all records is the mean of eight independent answers, each with sqrt(8) times the noise:
    the same cost and the same distribution as one, but a crash loses an eighth of the precision, not the answer.

    Guarantee: a record that becomes nothing moves a round's sum by at most the bound, so a round is the
    Gaussian mechanism with this noise multiplier, Poisson-sampled at this rate.
    """

    kind: ClassVar[str] = "gaussian-sum"
    sampling: float = 1.0

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        if not 0 < self.sampling <= 1:
            raise UsageError(f"Expected sampling in (0, 1], got {self.sampling!r}.")

    @property
    def unit_noise(self) -> float:
        return self.sampling * math.sqrt(self.rounds)

    @property
    def draws(self) -> int:
        return 8 if self.sampling == 1 else 1

    @property
    def mark_block(self) -> int:
        return 1 if self.sampling == 1 else 16

    def _own_fields(self) -> dict[str, Any]:
        return {"sampling": self.sampling}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyChoice(Mechanism):
    """Each round: every record gives each candidate a score in [0, bound]; the largest noisy total wins.

    Guarantee: scores only fall when a record becomes nothing, so the argmax under Gumbel noise of
    scale noise_multiplier * bound is (1 / noise_multiplier)-DP; the totals themselves are not released.
    """

    kind: ClassVar[str] = "noisy-choice"
    candidates: int = 2

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        if self.candidates < 2:
            raise UsageError(f"Expected at least 2 candidates, got {self.candidates!r}.")

    @property
    def unit_noise(self) -> float:
        return math.sqrt(self.rounds) / 2  # pure eps is mu = eps/2 or less (Bun and Steinke 2016, Prop. 3.3)

    def _own_fields(self) -> dict[str, Any]:
        return {"candidates": self.candidates}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedAnswers(Mechanism):
    """`rounds` vectors in all, each answered by one of `shards` teachers, drawn afresh for every vector.

    Guarantee: a record is in one shard, so it can move a vector only when its teacher was drawn
    (rate 1/shards), and then by at most twice the bound; noise is noise_multiplier * 2 * bound.
    """

    kind: ClassVar[str] = "sharded-answers"
    shards: int = 2

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        if self.shards < 1:
            raise UsageError(f"Expected at least 1 shard, got {self.shards!r}.")

    @property
    def unit_noise(self) -> float:
        return math.sqrt(self.rounds) / self.shards

    @property
    def mark_block(self) -> int:
        return 256

    def _own_fields(self) -> dict[str, Any]:
        return {"shards": self.shards}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedSums(Mechanism):
    """`rounds` vectors in all, each the sum of the answers of all teachers on `shards` disjoint shards.

    Guarantee: a record is in one shard, so it moves one term of each sum, by at most twice the bound; noise is
    noise_multiplier * 2 * bound, so a sum is the Gaussian mechanism with this noise multiplier.
    """

    kind: ClassVar[str] = "sharded-sums"
    shards: int = 2

    def __post_init__(self) -> None:
        Mechanism.__post_init__(self)
        if self.shards < 1:
            raise UsageError(f"Expected at least 1 shard, got {self.shards!r}.")

    @property
    def unit_noise(self) -> float:
        return math.sqrt(self.rounds)

    @property
    def mark_block(self) -> int:
        return 256

    def _own_fields(self) -> dict[str, Any]:
        return {"shards": self.shards}


def mechanism_from_dict(described: dict[str, Any]) -> Mechanism:
    """The mechanism that `to_dict` described; unknown kinds and fields are refused."""
    kinds: dict[str, type[Mechanism]] = {k.kind: k for k in (GaussianSum, NoisyChoice, ShardedAnswers, ShardedSums)}
    fields = dict(described)
    kind = fields.pop("kind", None)
    if kind not in kinds:
        raise UsageError(f"Expected a mechanism of kind {', '.join(kinds)}, got {kind!r}.")
    try:
        return kinds[kind](**fields)
    except TypeError as error:
        raise UsageError(f"A {kind} mechanism was described with wrong fields: {error}.") from error
