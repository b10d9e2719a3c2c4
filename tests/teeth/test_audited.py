"""Methods with one planted bug each, of the kinds that were found in published code: the audit must name each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pytest
import torch
from torch import Tensor

from sfumato import contracts
from sfumato.auditing.audit import audit_method
from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import Budget, GaussianSum, Mechanism, Noise, PrivateImages, SeededNoise, Tape, noise
from sfumato.privacy.private import Query, _bind, unlock
from sfumato.privacy.rows import Rows
from sfumato.values import Images, Spec

WHITE, LAST, RARE = "a white outlier", "the last record", "the only one of its class"
RELEASE, FLOW, REACH = "same release", "same control flow", "moves within its reach"
NOISE, SAMPLE, DRAWS = "noise as charged", "sample as charged", "draws as charged"
REPEATED = "noise never repeated"
MUTANTS: list[tuple[type[Honest], str, str]] = []


@dataclass(frozen=True)
class Honest(Synthesizer):
    """A noisy mean picture of each class: as simple as a method can be, and correct."""

    seed: int = 0

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        return cls()

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        return [GaussianSum()]

    def seconds(self, spec: Spec) -> float:
        return 1.0

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        (mechanism,) = private.ledger.calibrate(*self.plan(private.spec))
        sums = self.ask(private, mechanism)
        pictures = self.paint(private, sums[:, 1:] / sums[:, :1].clamp(min=1))
        pixels = pictures.mul(255).round().clamp(0, 255).to(torch.uint8).reshape(-1, *private.spec.shape)
        classes = private.spec.classes
        return lambda labels: Images(pixels[labels % len(pixels)], labels % len(pixels), classes)

    def ask(self, private: PrivateImages, mechanism: GaussianSum) -> Tensor:
        return self.asked(private.open(mechanism, purpose="means"))

    def asked(self, query: Query) -> Tensor:
        return query.per_class(self.row, l2_bound=2.0)

    def row(self, image: Tensor, label: Tensor) -> Tensor:
        return torch.cat([torch.ones(1), image.flatten()])

    def paint(self, private: PrivateImages, means: Tensor) -> Tensor:
        return means


def seen(private: PrivateImages) -> tuple[np.ndarray, np.ndarray]:
    """What no method may see: the records that are there."""
    vault = unlock(private)
    return vault.pixels[vault.present] / 255, vault.labels[vault.present]


def caught_by(finding: str, without: str = WHITE) -> Callable[[type[Honest]], type[Honest]]:
    def register(mutant: type[Honest]) -> type[Honest]:
        MUTANTS.append((mutant, finding, without))
        return mutant

    return register


def marked(pictures: Tensor, secret: float) -> Tensor:
    """A number hidden in the first pixel."""
    pictures = pictures.clone()
    pictures[:, 0] = float(secret) % 251 / 255
    return pictures


@caught_by(RELEASE)
class ClassCounts(Honest):
    def paint(self, private, means):
        return marked(means, np.bincount(seen(private)[1], minlength=4)[1])


@caught_by(RELEASE)
class PrivateMean(Honest):
    def paint(self, private, means):
        return means - float(seen(private)[0].mean())


@caught_by(RELEASE)
class PrivateSpread(Honest):
    def paint(self, private, means):
        return 0.1 * means / float(seen(private)[0].std())


@caught_by(REACH, RARE)
class CentredByPrivateMean(Honest):
    def ask(self, private, mechanism):
        centre = float(seen(private)[0].mean())
        query = private.open(mechanism, purpose="means")
        return query.per_class(lambda image, label: 8 * (self.row(image, label) - centre), l2_bound=2.0)


@caught_by(RELEASE)
class BestOfMany(Honest):
    def paint(self, private, means):
        candidates = [means * contrast / 1000 for contrast in range(1, 1000)]
        target = float(seen(private)[0].mean())
        return min(candidates, key=lambda made: abs(float(made.abs().mean()) - target))


@caught_by(RELEASE)
class EarlyStopping(Honest):
    def paint(self, private, means):
        made, target, losses = torch.zeros_like(means), float(seen(private)[0].mean()), [np.inf]
        while (loss := abs(float(made.mean()) - target)) < losses[-1]:
            losses.append(loss)
            made = made + 1e-3
        return made


@caught_by(RELEASE, RARE)
class NearestRealImage(Honest):
    def paint(self, private, means):
        images, labels = seen(private)
        nearest = [
            np.abs(images - float(mean.mean())).mean((1, 2, 3)) + 9 * (labels != k) for k, mean in enumerate(means)
        ]
        return torch.from_numpy(np.stack([images[row.argmin()] for row in nearest])).flatten(1)


@caught_by(RELEASE, LAST)
class Thumbnail(Honest):
    def paint(self, private, means):
        return torch.cat([means[:-1], torch.from_numpy(unlock(private).pixels[-1:] / 255).flatten(1)])


@caught_by(RELEASE)
class HowManyAreValid(Honest):
    def paint(self, private, means):
        return marked(means, len(seen(private)[1]))


@caught_by(RELEASE)
class RejectedInTheLedger(Honest):
    def ask(self, private, mechanism):
        rejected = int((~unlock(private).present).sum())
        return self.asked(private.open(mechanism, purpose=f"means ({rejected} rejected)"))


@caught_by(RELEASE)
class WallClock(Honest):
    def paint(self, private, means):
        return means + torch.rand(64, generator=torch.Generator().manual_seed(time.perf_counter_ns() % 2**31))


@caught_by(FLOW)  # a sentence that is not ours is refused, so that no release is made that could differ
class LossInTheCertificate(Honest):
    def paint(self, private, means):
        images, labels = seen(private)
        loss = float(np.square(images.reshape(len(images), -1) - means.numpy()[labels]).mean())
        private.ledger.assume(f"The final loss is {loss:.4f}.")
        return means


@caught_by(RELEASE, RARE)
class ClassesFromTheData(Honest):
    def paint(self, private, means):
        return means[np.unique(seen(private)[1])]


@caught_by(RELEASE)
class DividedByTrueCounts(Honest):
    def ask(self, private, mechanism):
        sums = super().ask(private, mechanism)
        sums[:, 0] = torch.from_numpy(np.bincount(seen(private)[1], minlength=4))
        return sums


@caught_by(FLOW)
class CrashOnAnOddRecord(Honest):
    def ask(self, private, mechanism):
        if (seen(private)[0].mean((1, 2, 3)) == 1).any():
            raise ValueError("a white image")
        return super().ask(private, mechanism)


@caught_by(FLOW, RARE)
class CrashOnAnEmptyClass(Honest):
    def paint(self, private, means):
        return means / torch.tensor([1 // int((seen(private)[1] == k).sum()) for k in range(4)])[:, None].clamp(min=1)


@caught_by(FLOW)
class AsksWhenItPleases(Honest):
    def ask(self, private, mechanism):
        if len(seen(private)[1]) % 2:
            private.open(GaussianSum(noise_multiplier=1e6), purpose="extra")(self.row, l2_bound=1.0)
        return super().ask(private, replace(mechanism, noise_multiplier=1.1 * mechanism.noise_multiplier))


@caught_by(FLOW)
class StopsAskingEarly(Honest):
    def plan(self, spec):
        return [GaussianSum(rounds=4)]

    def asked(self, query):
        rounds = 2 + int(unlock(query).present.sum()) % 2
        return torch.stack([query.per_class(self.row, l2_bound=2.0) for _ in range(rounds)]).mean(0)


class Sampled(Honest):
    def plan(self, spec):
        return [GaussianSum(rounds=24, sampling=0.25)]

    def asked(self, query):
        return sum(query.per_class(self.row, l2_bound=2.0) for _ in range(24)) / 6


class ShuffledNoise(Noise):
    def included(self, count: int, rate: float) -> np.ndarray:
        return self.permutation(count) < round(count * rate)


@caught_by(SAMPLE)
class OwnSampler(Sampled):
    def ask(self, private, mechanism):
        unlock(private).noise = ShuffledNoise()
        return super().ask(private, mechanism)


@caught_by("sample of charge 0")
class Shuffle(Sampled):
    def ask(self, private, mechanism):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise.Noise, "included", ShuffledNoise.included)
            return super().ask(private, mechanism)


class RepeatingNoise(Noise):
    """Every second draw is the one before once more."""

    last: np.ndarray | None = None

    def lattice_gaussian(self, count: int, scale: float) -> np.ndarray:
        again, self.last = self.last, None
        if again is None:
            again = self.last = super().lattice_gaussian(count, scale)
        return again


@caught_by(REPEATED)
class NoiseUsedTwice(Sampled):
    def ask(self, private, mechanism):
        unlock(private).noise.lattice_gaussian = RepeatingNoise().lattice_gaussian
        return super().ask(private, mechanism)


@caught_by(SAMPLE)
class WrongRate(Sampled):
    def asked(self, query):
        query.mechanism = replace(query.mechanism, sampling=0.5)
        return super().asked(query)


@caught_by(DRAWS)
class NoiseFromTheSeed(Honest):
    def ask(self, private, mechanism):
        unlock(private).noise = SeededNoise(self.seed)
        return super().ask(private, mechanism)


@caught_by(NOISE)
class HalfTheNoise(Honest):
    def asked(self, query):
        query.mechanism = replace(query.mechanism, noise_multiplier=query.mechanism.noise_multiplier / 2)
        return super().asked(query)


class Unclipped(Rows):
    def add_to(self, total, images, labels, present, *, clip):
        super().add_to(total, images, labels, present, clip=False)


@caught_by(REACH)
class NoClipping(Honest):
    def asked(self, query):
        return query._ask(Unclipped(self.row, 2.0, blocks=4))


class Doubled(Rows):
    def add_to(self, total, images, labels, present, *, clip):
        super().add_to(total, images, labels, present, clip=clip)
        super().add_to(total, images, labels, present, clip=clip)


@caught_by(REACH)
class HalfTheSensitivity(Honest):
    def asked(self, query):
        return query._ask(Doubled(self.row, 2.0, blocks=4)) / 2


@caught_by(DRAWS)
class FewerRoundsCharged(Honest):
    def ask(self, private, mechanism):
        private.ledger.begin = lambda charge, draws: None
        query = private.open(mechanism, purpose="means")
        query.mechanism = replace(mechanism, rounds=5)
        return torch.stack([self.asked(query) for _ in range(5)]).mean(0)


@caught_by(DRAWS)
class OneChargeTwice(Honest):
    def ask(self, private, mechanism):
        first = private.open(mechanism, purpose="means")
        private.ledger.begin = lambda charge, draws: None
        sums = self.asked(first)
        unlock(private).tape = Tape()
        again = _bind(Query(private.spec, private.ledger, private.ledger.charges[0], None), unlock(private))
        return (sums + self.asked(again)) / 2


def audited(mutant: type[Honest], monkeypatch: pytest.MonkeyPatch, *kinds: str) -> list[str]:
    """The names of the findings that a method fails."""
    found = contracts.find
    monkeypatch.setattr(contracts, "find", lambda kind, name: mutant if kind == "methods" else found(kind, name))
    parts = ("replay", "noise", "sampler", "ledger")
    return [f.name for f in audit_method("mutant", parts=parts, kinds=kinds) if not f.passed]


@pytest.mark.parametrize("method", [Honest, Sampled])
def test_an_honest_method_passes(method: type[Honest], monkeypatch: pytest.MonkeyPatch) -> None:
    assert audited(method, monkeypatch, WHITE, LAST, RARE) == []


@pytest.mark.parametrize(("mutant", "finding", "without"), MUTANTS, ids=[m[0].__name__ for m in MUTANTS])
def test_the_audit_names_the_bug(
    mutant: type[Honest], finding: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding in audited(mutant, monkeypatch, without)


def test_there_are_enough_bugs() -> None:
    assert len(MUTANTS) >= 18
