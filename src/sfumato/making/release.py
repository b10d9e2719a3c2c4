"""From a private data set to a release on disk: plan, charge, ask, close, sample, certify, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sfumato import contracts
from sfumato.contracts import DEFAULT_METHOD, Reading, Synthesizer
from sfumato.errors import UsageError
from sfumato.making.certify import certify, network_of
from sfumato.making.charged_run import (
    asked_with_settings,
    budget_of,
    charged_run,
    public_images_of,
    refuse_bad_target,
)
from sfumato.making.forecast import Forecast, forecast, measured
from sfumato.making.shards import open_records
from sfumato.networks.public_network import LITE0
from sfumato.privacy import Budget, Ledger, Mechanism, Noise, Tape, calibrate, epsilon_pld
from sfumato.release import write_release
from sfumato.values import Images, Source, Spec

NO_READING = Reading()
MOST_IMAGES = 10**7  # a release is made in memory


@dataclass(frozen=True, slots=True)
class Job:
    """What a user asks for; with the same job a killed run resumes."""

    data: str
    method: str = DEFAULT_METHOD
    epsilon: float = 1.0
    delta: float | None = None
    public: str | None = None
    count: int | None = None
    reading: Reading = NO_READING
    folders: bool = False  # also write the images as class folders
    settings: tuple[tuple[str, str], ...] = ()  # hyperparameters by name, as a user writes them
    # `data` is a folder of shards where the engine is ray or there are several processes
    engine: Literal["local", "ray"] = "local"
    address: str | None = None  # of a Ray cluster; without one, a local cluster is started
    processes: int = 1  # on this machine

    @property
    def asked_by(self) -> str:
        return self.method


@dataclass(frozen=True, slots=True)
class Task:
    """A job with what its data set makes public."""

    spec: Spec
    budget: Budget
    synthesizer: Synthesizer


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job will ask of the private data and cost, from public facts alone."""

    task: Task
    mechanisms: tuple[Mechanism, ...]
    epsilon: float
    seconds: float
    expected: tuple[Forecast, ...]  # how good students of the release will be, judged by public data; may be empty


def task_of(job: Job, source: Source) -> Task:
    """Budget and hyperparameters for a job; raises if anything is wrong with the request."""
    spec = source.spec
    budget = budget_of(job, spec)
    synthesizer = asked_with_settings(contracts.find("methods", job.method).for_task(spec, budget), job, spec)
    check_count(job.count)
    return Task(spec, budget, synthesizer)


def check_count(count: int | None) -> None:
    if count is not None and not 1 <= count <= MOST_IMAGES:
        raise UsageError(
            f"Expected a count from 1 to {MOST_IMAGES}, got {count}.", fix="give a count in this range, or none"
        )


def plan_release(job: Job, *, source: Source | None = None) -> Plan:
    """Noise, rounds and expected time; no private pixel is read."""
    task = task_of(job, source or open_records(job))
    epsilon, delta = task.budget.epsilon, task.budget.delta
    mechanisms = calibrate(task.synthesizer.plan(task.spec), epsilon=epsilon, delta=delta)
    seconds = task.synthesizer.seconds(task.spec)
    return Plan(task, mechanisms, epsilon_pld(mechanisms, delta), seconds, _expected(job, task))


def _expected(job: Job, task: Task) -> tuple[Forecast, ...]:
    """For the default method alone, and without public images: nothing else was measured for this."""
    if job.method != DEFAULT_METHOD or job.public is not None:
        return ()
    network = network_of(task.synthesizer)
    return forecast(task.spec, task.budget, measured(), lite0=network is not None and network.startswith(LITE0))


def make_release(
    job: Job,
    out: Path | str,
    *,
    noise: Noise | None = None,
    tape: Tape | None = None,
    after: Callable[[contracts.Sampler], None] | None = None,
) -> Path:
    """Make the release of a job in the folder `out`, or resume a run that was killed.

    Lab material is written to `<out>.lab`. Another `noise` or `tape` is for tests: seeded noise gives a
    release that says NOT PRIVATE, and a recording's pair records or replays the run. When the release is on
    disk, `after` is called with the sampler, to judge it; it cannot change the release any more.
    """
    out = Path(out).absolute()
    refuse_bad_target(out, job.data)
    source = open_records(job)
    task = task_of(job, source)
    public = public_images_of(job, task.spec)

    def write(sampler: contracts.Sampler, ledger: Ledger, noise: Noise) -> Path:
        images = balanced_sample(sampler, task.spec, job.count or task.spec.count)
        certificate = certify(job, task, ledger, noise, images, ledger.assumptions)
        written = write_release(out, images, certificate, export_folders=job.folders)
        if after is not None:
            after(sampler)
        return written

    return charged_run(job, task.synthesizer, task.budget, source, public, out, write=write, noise=noise, tape=tape)


def balanced_sample(sampler: contracts.Sampler, spec: Spec, count: int) -> Images:
    """A balanced set: labels cycle through the classes, so they do not depend on the private class sizes."""
    import torch

    labels = torch.arange(count) % len(spec.classes)
    return sampler(labels)
