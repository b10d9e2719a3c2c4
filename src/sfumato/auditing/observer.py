"""An observer of a run: it sees every draw of noise and every answer, and checks both against the ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sfumato.privacy import Charge, GaussianSum, Mechanism, Noise, Tape

T = TypeVar("T")
Ints = NDArray[np.int64]
ALPHA = 1e-9  # the probability of a false alarm of each statistical test
MOST_NORMALS = 200_000  # for the test of shape, which sorts them


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an audit looked at: whether it holds, a line about it, and its numbers."""

    name: str
    passed: bool
    detail: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """One answer of the core: the noise of its last draw, and which records were in the sample."""

    charge: int
    number: int
    size: int
    draws: int  # of noise, in the answer so far
    residual: Ints | None  # answer less exact sum: the noise; none for a choice
    reach: float
    included: NDArray[np.bool_] | None
    rate: float | None


@dataclass
class RunObserver:
    """Wraps the noise and the tape of a run and records all that they return. What it holds is lab material."""

    inner_noise: Noise = field(default_factory=Noise)
    inner_tape: Tape = field(default_factory=Tape)
    answers: list[ObservedAnswer] = field(default_factory=list)
    normals: int = 0  # Gaussian numbers drawn
    gumbels: int = 0  # calls for Gumbel noise
    sampled: list[tuple[NDArray[np.bool_], float]] = field(default_factory=list)

    def pair(self) -> tuple[Noise, Tape]:
        return _Noise(self), _Tape(self)

    @property
    def flow(self) -> list[tuple[int, int, int, int]]:
        """The control flow as the answers show it: which answers of which size, in order."""
        return [(t.charge, t.number, t.size, t.draws) for t in self.answers]


class _Noise(Noise):
    def __init__(self, observer: RunObserver) -> None:
        super().__init__()
        self._observer = observer

    def lattice_gaussian(self, count: int, scale: float) -> Ints:
        self._observer.normals += count
        return self._observer.inner_noise.lattice_gaussian(count, scale)

    def gumbel(self, count: int) -> NDArray[np.float64]:
        self._observer.gumbels += 1
        return self._observer.inner_noise.gumbel(count)

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        drawn = self._observer.inner_noise.included(count, rate)
        self._observer.sampled.append((drawn.copy(), rate))
        return drawn

    def drawn_shards(self, count: int, shards: int) -> Ints:
        return self._observer.inner_noise.drawn_shards(count, shards)

    def permutation(self, count: int) -> Ints:
        return self._observer.inner_noise.permutation(count)


class _Tape(Tape):
    def __init__(self, observer: RunObserver) -> None:
        super().__init__()
        self._observer = observer
        self._used = 0  # samples that belong to earlier answers
        self._before: dict[tuple[int, int], Any] = {}

    def recall(self, charge: int, number: int) -> Any:
        return self._observer.inner_tape.recall(charge, number)

    def recorded(self, charge: int) -> int:
        return self._observer.inner_tape.recorded(charge)

    def draws(self, charge: int) -> int:
        return self._observer.inner_tape.draws(charge)

    def settle(self, charge: int, number: int, answer: Any, *, exact: Ints, reach: float) -> Any:
        observer = self._observer
        before = self._before.get((charge, number))
        residual = None
        if answer.total.size == exact.size:
            residual = answer.total - exact.ravel() - (0 if before is None else before.total)
        fresh = before is None and len(observer.sampled) > self._used
        included, rate = observer.sampled[-1] if fresh else (None, None)
        self._used = len(observer.sampled)
        observer.answers.append(
            ObservedAnswer(charge, number, exact.size, answer.draws, residual, reach, included, rate)
        )
        kept = observer.inner_tape.settle(charge, number, answer, exact=exact, reach=reach)
        self._before[charge, number] = kept
        return kept


def verdict(name: str, problems: list[str], fine: str, values: dict[str, Any]) -> Finding:
    """A finding that fails with its first problem, or holds with the text `fine`."""
    different = list(dict.fromkeys(problems))
    more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
    detail = different[0] + more if different else fine
    return Finding(name, not different, detail, {**values, "problems": different})


def noise_finding(observer: RunObserver, charges: Sequence[Charge]) -> Finding:
    """Answers less exact sums, in units of the claimed standard deviation, are standard normal."""
    parts = [
        t.residual / _spread(charges[t.charge].mechanism, t.reach) for t in observer.answers if t.residual is not None
    ]
    if not parts:
        return Finding("noise as charged", True, "no sums were asked", {"normals": 0})
    normals = np.concatenate(parts)
    return normal_finding("noise as charged", normals)


def normal_finding(name: str, normals: NDArray[np.float64]) -> Finding:
    """Are these standard normal? Their size by chi-square, their shape by Kolmogorov and Smirnov."""
    square = float(np.square(normals).sum())
    size = float(2 * min(stats.chi2.cdf(square, normals.size), stats.chi2.sf(square, normals.size)))
    shape = float(stats.kstest(normals[:MOST_NORMALS], "norm").pvalue)
    ratio = float(np.sqrt(square / normals.size))
    detail = f"{ratio:.4f} of the claimed spread over {normals.size:,} draws (p = {size:.2g} and {shape:.2g})"
    values = {"ratio": ratio, "normals": normals.size, "p_size": size, "p_shape": shape}
    return Finding(name, min(size, shape) > ALPHA, detail, values)


def independence_finding(observer: RunObserver, charges: Sequence[Charge]) -> Finding:
    """No draw of noise depends on another: neighbouring draws of a charge, and those of neighbouring charges."""
    drawn: list[list[NDArray[np.float64]]] = [[] for _ in charges]
    for answer in observer.answers:
        if answer.residual is not None:
            drawn[answer.charge].append(answer.residual / _spread(charges[answer.charge].mechanism, answer.reach))
    return independent_finding("noise never repeated", [draws for draws in drawn if draws])


def independent_finding(name: str, drawn: Sequence[Sequence[NDArray[np.float64]]]) -> Finding:
    """Are these standard normal draws (charges, draws, values) independent of each other?

    The sum and the difference of two independent normals of equal spread are independent, too, so that the ratio of
    their squares has an F distribution: an exact test, on pairs that do not overlap.
    """
    pairs = {
        "draws 2k and 2k + 1": [pair for draws in drawn for pair in _paired(draws)],
        "draws 2k + 1 and 2k + 2": [pair for draws in drawn for pair in _paired(draws[1:])],
        "charges 2k and 2k + 1": [pair for charges in _paired(drawn) for pair in zip(*charges, strict=False)],
        "charges 2k + 1 and 2k + 2": [pair for charges in _paired(drawn[1:]) for pair in zip(*charges, strict=False)],
    }
    odds = {kind: _independence_odds(of_kind) for kind, of_kind in pairs.items() if of_kind}
    kept = [draw.tobytes() for draws in drawn for draw in draws if draw.size >= 4]
    problems = [f"{kind} depend on each other (p = {p:.2g})" for kind, p in odds.items() if p <= ALPHA]
    problems += ["a draw occurs twice"] if len(set(kept)) < len(kept) else []
    count = sum(len(draws) for draws in drawn)
    fine = f"{count} draws; least likely: p = {min(odds.values(), default=1.0):.2g}"
    return verdict(name, problems, fine, {"draws": count, **odds})


def _paired(values: Sequence[T]) -> list[tuple[T, T]]:
    return list(zip(values[::2], values[1::2], strict=False))


def _independence_odds(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    shared = [(a[: b.size], b[: a.size]) for a, b in pairs]
    size = sum(a.size for a, _ in shared)
    sums = sum(float(np.square(a + b).sum()) for a, b in shared)
    differences = sum(float(np.square(a - b).sum()) for a, b in shared)
    ratio = sums / max(differences, 1e-300)
    return float(2 * min(stats.f.cdf(ratio, size, size), stats.f.sf(ratio, size, size)))


def _spread(mechanism: Mechanism, reach: float) -> float:
    """What one draw's standard deviation should be, on the lattice."""
    spread: float = (mechanism.noise_multiplier or 0.0) * reach * math.sqrt(mechanism.draws)
    return max(spread, 1e-300)


def sampling_findings(observer: RunObserver, charges: Sequence[Charge]) -> list[Finding]:
    """Every round's sample was drawn by the core at the rate that was charged, and as Poisson sampling is."""
    found: list[Finding] = []
    problems: list[str] = []
    for number, charge in enumerate(charges):
        if not isinstance(charge.mechanism, GaussianSum):
            continue
        rate = charge.mechanism.sampling
        # reversed, so that the first answer of each round is kept
        rounds = {t.number: t for t in reversed(observer.answers) if t.charge == number}.values()
        masks = [t.included for t in rounds if t.included is not None]
        problems += [f"{len(rounds) - len(masks)} rounds without a sample"] if len(masks) < len(rounds) else []
        problems += [f"drawn at {t.rate} where {rate} was charged" for t in rounds if t.rate not in (rate, None)][:1]
        if rate < 1 and masks:
            found.append(sampling_finding(f"sample of charge {number}", np.stack(masks), rate))
            many = np.stack([Noise().included(2_000, rate) for _ in range(200)])
            found.append(sampling_finding(f"sampler at {rate:g}", many, rate))
        elif not all(mask.all() for mask in masks):
            problems.append(f"charge {number} left records out")
    return [verdict("sample as charged", problems, "every round has the sample that was paid for", {}), *found]


def sampling_finding(name: str, drawn: NDArray[np.bool_], rate: float) -> Finding:
    """Is each of these (rounds, records) included independently with that probability?

    Shuffled batches have the right rate, but they are of one size and use every record equally often.
    """
    rounds, count = drawn.shape
    pairs = drawn[:, : count - count % 2]
    together = pairs[:, ::2] & pairs[:, 1::2]
    odds = {
        "rate": float(stats.binomtest(int(drawn.sum()), drawn.size, rate).pvalue),
        "sizes of batches": _spread_odds(drawn.sum(1), count, rate),
        "uses of records": _spread_odds(drawn.sum(0), rounds, rate) if rounds > 2 else 1.0,
        "pairs": float(stats.binomtest(int(together.sum()), together.size, rate**2).pvalue) if count > 1 else 1.0,
    }
    worst = min(odds, key=lambda law: odds[law])
    detail = (
        f"{drawn.mean():.4f} of {count} records over {rounds} rounds; least likely: {worst} (p = {odds[worst]:.2g})"
    )
    return Finding(name, odds[worst] > ALPHA, detail, {"rate": rate, **odds})


def _spread_odds(sums: Ints, trials: int, rate: float) -> float:
    """Two-sided p-value of the spread of binomial numbers, by a gamma distribution of the same mean and variance."""
    variance = trials * rate * (1 - rate)
    excess = (1 - 6 * rate * (1 - rate)) / variance
    square = float(np.square(sums - trials * rate).sum() / variance)
    width = 2 + excess
    law = stats.gamma(len(sums) / width, scale=width)
    return float(2 * min(law.cdf(square), law.sf(square)))


def drawn_finding(observer: RunObserver, charges: Sequence[Charge], begun: Sequence[int]) -> Finding:
    """As many draws as the ledger marked, all of them from the core's own noise, each answered once."""
    problems = []
    drawn = [0] * len(charges)
    for answer in {(t.charge, t.number): t for t in observer.answers}.values():  # the last of each round
        drawn[answer.charge] += answer.draws
    for charge, used, marked in zip(charges, drawn, begun, strict=True):
        block = charge.mechanism.mark_block
        if not used <= marked < used + block:
            problems.append(f"{used} draws of {charge.purpose!r} where {marked} were marked as begun")
    if not observer.answers:
        problems.append("nothing was asked of the data, so there is nothing to audit")
    answered = sum(t.size for t in observer.answers if t.residual is not None)
    if observer.normals != answered:
        problems.append(f"{answered} noisy numbers were answered and {observer.normals} drawn from the core's noise")
    if observer.gumbels != sum(t.residual is None for t in observer.answers):
        problems.append("choices and their noise do not match")
    fine = f"{sum(drawn)} draws for {len(charges)} charges, all marked before and all from the core's noise"
    return verdict("draws as charged", problems, fine, {"drawn": sum(drawn), "begun": sum(begun)})
