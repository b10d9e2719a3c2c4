"""DP-FETA with one planted bug each, of those that public code of private diffusion models has: the audit names each.

What only the core could do wrong is planted there, in test_mutants.py: copies of a record that are clipped apart,
shards that add noise or sample on their own, spending that is forgotten when the rest is calibrated, another
accountant for the calibration, and noise or sampling from a seed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from conformance.checking import CLASSES, expect_charged_as_planned, shapes, written
from sfumato import contracts
from sfumato.contracts import Reading, Sampler
from sfumato.making.release import Job, make_release, plan_release
from sfumato.methods.dp_feta import DPFETA
from sfumato.privacy import Budget, GaussianSum, PrivateImages, SeededNoise, Tape
from sfumato.privacy.gradients.fast_path import FastPathRows
from sfumato.privacy.private import Query, _bind, unlock
from sfumato.privacy.rows import Rows
from sfumato.synthesis.central_images import CentralQuestion
from sfumato.synthesis.edm import ClassDenoiser
from sfumato.values import Images, Spec
from teeth.test_audited import DRAWS, FLOW, NOISE, RARE, REACH, RELEASE, SAMPLE, WHITE, audited

MUTANTS: list[tuple[type[Small], str, str]] = []


@dataclass(frozen=True)
class Small(DPFETA):
    """The method as it is, with settings for a second, and a place for a bug where central images are asked."""

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        return cls(
            width=8,
            rounds=8,
            sampling=0.3,
            multiplicity=2,
            central_rounds=2,
            steps=2,
            batch=8,
            varied=20,
            sampler_steps=2,
        )

    def pretrain_on_central_images(
        self, private: PrivateImages, mechanism: GaussianSum, network: ClassDenoiser
    ) -> None:
        with self.wrong(private, mechanism):
            super().pretrain_on_central_images(private, mechanism, network)

    @contextmanager
    def wrong(self, private: PrivateImages, mechanism: GaussianSum) -> Iterator[None]:
        """What is broken while central images are asked."""
        with pytest.MonkeyPatch.context() as patch:
            self.broken(patch, private, mechanism)
            yield

    def broken(self, patch: pytest.MonkeyPatch, private: PrivateImages, mechanism: GaussianSum) -> None:
        pass


def class_counts(handle: object) -> Tensor:
    """What is to be asked and never looked at."""
    vault = unlock(handle)
    return torch.from_numpy(np.bincount(vault.labels[vault.present], minlength=4)).float()


def caught_by(finding: str, without: str = WHITE) -> Callable[[type[Small]], type[Small]]:
    def register(mutant: type[Small]) -> type[Small]:
        MUTANTS.append((mutant, finding, without))
        return mutant

    return register


class Unclipped(Rows):
    def add_to(self, total: Any, images: Any, labels: Any, present: Any, *, clip: bool) -> None:
        super().add_to(total, images, labels, present, clip=False)


@caught_by(REACH, RARE)
class DividedByHowManyThereAre(Small):
    """Means in place of sums: their bound is for a number of images that is the same for all data."""

    def broken(self, patch, private, mechanism):
        counts = class_counts(private).clamp(min=1)
        usual = 16  # images of a class, as public code expects from the size of a batch

        def per_class(query: Query, contribution: Any, *, l2_bound: float) -> Tensor:
            rows = Unclipped(
                lambda image, label: contribution(image, label) / counts[label], l2_bound / usual, blocks=4
            )
            return query._ask(rows) * counts[:, None, None]

        patch.setattr(Query, "per_class", per_class)


@caught_by(RELEASE)
class SizesFromTheData(Small):
    """Noisy sums, but divided by the exact sizes of the classes."""

    def broken(self, patch, private, mechanism):
        exact = class_counts(private)
        patch.setattr(CentralQuestion, "_class_sizes", lambda self, sums, noise: exact.clamp(min=1))


@caught_by(RELEASE)
class SizesOfSamplesFromTheData(Small):
    """The same, for how many there are in each sum."""

    def broken(self, patch, private, mechanism):
        exact, right = class_counts(private).clamp(min=1), CentralQuestion._sizes

        def sizes(question: CentralQuestion, sums: Tensor, classes: Tensor, noise: float) -> tuple[Tensor, Tensor]:
            found, there = right(question, sums, classes, noise)
            return exact[None, :, None].expand(found.shape), there

        patch.setattr(CentralQuestion, "_sizes", sizes)


@caught_by(DRAWS)
class NoiseFromTheSeed(Small):
    def broken(self, patch, private, mechanism):
        patch.setattr(unlock(private), "noise", SeededNoise(self.seed))


@caught_by(SAMPLE)
class SamplingFromTheSeed(Small):
    def train_privately(self, private, mechanism, network, *, what):
        draw = np.random.default_rng(self.seed)
        unlock(private).noise.included = lambda count, rate: draw.random(count) < rate
        super().train_privately(private, mechanism, network, what=what)


@caught_by(DRAWS)
class CentralImagesForNothing(Small):
    """All of the budget is for the gradients; central images are asked beside the ledger."""

    def plan(self, spec):
        return [self.gradients()]

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        (gradients,) = private.ledger.calibrate(*self.plan(private.spec))
        network = self.untrained(private.spec)
        central = replace(self.central(private.spec), noise_multiplier=1.0)
        self.train_privately(private, gradients, network, what="mutant")
        with pytest.MonkeyPatch.context() as patch:
            beside_the_ledger(patch, private)
            self.pretrain_on_central_images(private, central, network.requires_grad_())
        return self.sampled_by(network.requires_grad_(False), private.spec)


@caught_by(DRAWS)
class EachWorkerAsks(Small):
    """Two workers have central images each, with noise of their own, for the price of one answer."""

    def pretrain_on_central_images(self, private, mechanism, network):
        super().pretrain_on_central_images(private, mechanism, network)
        with pytest.MonkeyPatch.context() as patch:
            beside_the_ledger(patch, private)
            super().pretrain_on_central_images(private, mechanism, network)


def beside_the_ledger(patch: pytest.MonkeyPatch, private: PrivateImages) -> None:
    """Whatever is opened from now on belongs to the first charge, and no draw of it is marked."""
    vault, ledger = unlock(private), private.ledger
    patch.setattr(vault, "tape", Tape())
    patch.setattr(ledger, "begin", lambda charge, draws: None)

    def opened(handle: PrivateImages, mechanism: GaussianSum, **_: object) -> Query:
        query = _bind(Query(private.spec, ledger, ledger.charges[0], None), vault)
        query.mechanism = mechanism
        return query

    patch.setattr(PrivateImages, "open", opened)


@caught_by(NOISE)
class NoiseOfTheShareOfAnother(Small):
    """A history that is kept by hand: the noise is not the one that the ledger has for this question."""

    def broken(self, patch, private, mechanism):
        right = PrivateImages.open

        def opened(handle: PrivateImages, asked: GaussianSum, **options: Any) -> Query:
            query = right(handle, asked, **options)
            query.mechanism = replace(asked, noise_multiplier=asked.noise_multiplier / 2)
            return query

        patch.setattr(PrivateImages, "open", opened)


@caught_by(REACH)
class CopiesClippedApart(Small):
    """Each noised copy of a record has a bound of its own, so that a record moves the sum by as many bounds."""

    def train_privately(self, private, mechanism, network, *, what):
        right, copies = FastPathRows._scales, self.multiplicity
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FastPathRows, "_scales", lambda *given, clip: copies * right(*given, clip=clip))
            super().train_privately(private, mechanism, network, what=what)


KEPT: dict[str, Images] = {}  # what an earlier run has left, outside of its lab


@caught_by(FLOW)
class CentralImagesOfAnEarlierRun(Small):
    """The first run asks, and every later one has the answer for nothing."""

    def broken(self, patch, private, mechanism):
        right = CentralQuestion.ask

        def ask(question: CentralQuestion, query: Query) -> Images:
            if "central" not in KEPT:
                KEPT["central"] = right(question, query)
            return KEPT["central"]

        patch.setattr(CentralQuestion, "ask", ask)


class SkipsWhatIsKept(Small):
    """The same where the file lies there already: nothing differs between runs, but a charge is missing."""

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        gradients = private.ledger.calibrate(*self.plan(private.spec))[-1]
        network = self.untrained(private.spec)
        self.train_privately(private, gradients, network, what="mutant")
        return self.sampled_by(network, private.spec)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def test_the_method_as_it_is_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audited(Small, monkeypatch, WHITE, RARE) == []


@pytest.mark.parametrize(("mutant", "finding", "without"), MUTANTS, ids=[m[0].__name__ for m in MUTANTS])
def test_the_audit_names_the_bug(
    mutant: type[Small], finding: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finding in audited(mutant, monkeypatch, without)


@pytest.mark.parametrize(("method", "charged"), [(Small, True), (SkipsWhatIsKept, False)])
def test_conformance_notices_a_question_that_is_planned_and_never_paid(
    method: type[Small], charged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contracts, "find", lambda kind, name: method)
    job = Job(written(tmp_path, *shapes()), "mutant", 1.0, count=4, reading=Reading(classes=CLASSES))
    made = make_release(job, tmp_path / "r")
    certificate, planned = json.loads((made / "certificate.json").read_text()), plan_release(job).mechanisms
    if charged:
        expect_charged_as_planned(certificate, planned)
    else:
        with pytest.raises(AssertionError):
            expect_charged_as_planned(certificate, planned)
