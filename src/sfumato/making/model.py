"""From a private data set to a released classifier: plan, charge, train, close, certify, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfumato import contracts
from sfumato.contracts import DEFAULT_LEARNER, Learner, Reading
from sfumato.errors import UsageError
from sfumato.making.certify import certify_model
from sfumato.making.charged_run import (
    asked_with_settings,
    budget_of,
    charged_run,
    public_images_of,
    refuse_bad_target,
)
from sfumato.making.shards import open_records
from sfumato.privacy import Budget, Ledger, Mechanism, Noise, Tape, calibrate, epsilon_pld
from sfumato.release import write_model
from sfumato.values import Classifier, Source, Spec

NO_READING = Reading()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """What a user asks for who wants a classifier; with the same job a killed run resumes."""

    data: str
    learner: str = DEFAULT_LEARNER
    epsilon: float = 1.0
    delta: float | None = None
    public: str | None = None
    reading: Reading = NO_READING
    settings: tuple[tuple[str, str], ...] = ()  # hyperparameters by name, as a user writes them
    # `data` is a folder of shards where the engine is ray or there are several processes
    engine: Literal["local", "ray"] = "local"
    address: str | None = None  # of a Ray cluster; without one, a local cluster is started
    processes: int = 1  # on this machine

    @property
    def asked_by(self) -> str:
        return self.learner


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a training will ask of the private data and cost, from public facts alone."""

    spec: Spec
    budget: Budget
    learner: Learner
    mechanisms: tuple[Mechanism, ...]
    epsilon: float
    seconds: float


def plan_training(job: TrainingJob, *, source: Source | None = None) -> TrainingPlan:
    """Noise, rounds and expected time; no private pixel is read."""
    spec = (source or open_records(job)).spec
    budget, learner = _asked(job, spec)
    mechanisms = calibrate(learner.plan(spec), epsilon=budget.epsilon, delta=budget.delta)
    epsilon = epsilon_pld(mechanisms, budget.delta)
    return TrainingPlan(spec, budget, learner, mechanisms, epsilon, learner.seconds(spec))


def train_model(job: TrainingJob, out: Path | str, *, noise: Noise | None = None, tape: Tape | None = None) -> Path:
    """Train the classifier of a job and release it in the folder `out`, or resume a run that was killed.

    Lab material is written to `<out>.lab`. Another `noise` or `tape` is for tests, as for releases of images.
    """
    out = Path(out).absolute()
    refuse_bad_target(out, job.data)
    source = open_records(job)
    spec = source.spec
    budget, learner = _asked(job, spec)

    def write(classifier: Classifier, ledger: Ledger, noise: Noise) -> Path:
        return write_model(out, classifier, certify_model(job, spec, budget, learner, ledger, noise, classifier))

    public = public_images_of(job, spec)
    return charged_run(job, learner, budget, source, public, out, write=write, noise=noise, tape=tape)


def _asked(job: TrainingJob, spec: Spec) -> tuple[Budget, Learner]:
    if len(spec.classes) < 2:
        raise UsageError(
            f"Expected at least 2 classes for a classifier to tell apart, got {len(spec.classes)}.",
            fix="name all classes with --classes, or choose another --label",
        )
    budget = budget_of(job, spec)
    return budget, asked_with_settings(contracts.find("learners", job.learner).for_task(spec, budget), job, spec)
