"""From a private data set to a release on disk: plan, charge, ask, close, sample, certify, write."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from sfumato import contracts, data
from sfumato.contracts import DEFAULT_METHOD, Reading, Synthesizer
from sfumato.errors import UsageError
from sfumato.lab.folder import Lab
from sfumato.making.certify import assumptions_of, certify, network_of
from sfumato.making.forecast import Forecast, forecast, measured
from sfumato.making.shards import Shards, is_sharded, open_records, refuse_other_than_sums
from sfumato.networks.public_network import LITE0
from sfumato.privacy import Budget, Ledger, Mechanism, Noise, PrivateImages, Tape, calibrate, epsilon_pld
from sfumato.release import write_release
from sfumato.values import Images, Source, Spec

NO_READING = Reading()
MOST_EPSILON = 100  # loss distributions of more fill the memory and overflow
MOST_IMAGES = 10**7  # a release is made in memory
SHARD_FIELDS = ("engine", "address", "processes")  # of a job; in run.json only if the data is in shards
LONGEST_NAME = 200  # bytes; file systems allow 255, and `.lab` and `.tmp-<pid>` are put behind it


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
    budget = Budget.of(job.epsilon, count=spec.count, delta=job.delta)
    if MOST_EPSILON < job.epsilon < math.inf:
        raise UsageError(
            f"Expected epsilon up to {MOST_EPSILON}, got {job.epsilon:g}; beyond, it cannot be counted.",
            fix="use less, or inf for a release that is not private",
        )
    synthesizer = with_settings(contracts.find("methods", job.method).for_task(spec, budget), dict(job.settings))
    if synthesizer.public_images == "needed" and job.public is None:
        raise UsageError(f"Expected public images for {job.method}.", fix="name them with --public")
    if synthesizer.public_images == "unused" and job.public is not None:
        raise UsageError(f"{job.method} makes no use of public images.", fix="leave --public out")
    check_count(job.count)
    network_of(synthesizer)  # refuses what a certificate could not name
    if is_sharded(job):
        refuse_other_than_sums(synthesizer, spec, job.method)
    if job.public is not None:
        data.open_source(job.public, _public_reading(spec))
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


def with_settings(synthesizer: Synthesizer, settings: Mapping[str, str]) -> Synthesizer:
    """The synthesizer with some hyperparameters as the user wrote them."""
    kinds = {f.name: type(getattr(synthesizer, f.name)) for f in fields(synthesizer)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in kinds:
            raise UsageError(
                f"Expected one of the settings {', '.join(kinds)}; got {name!r}.",
                fix="choose one of these, or leave it out",
            )
        try:
            changed[name] = _typed(text, kinds[name])
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"Expected {name} as {kinds[name].__name__}, got {text!r}.", fix="give such a value, or leave it out"
            ) from error
    return replace(synthesizer, **changed)  # type: ignore[type-var]


def _typed(text: str, kind: type[Any]) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind is tuple:
        return tuple(_typed(part, float) for part in text.split(","))
    value = kind(text)
    if kind is float and not math.isfinite(value):
        raise ValueError("not finite")
    return value


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
    with Lab.beside(out) as lab:
        lab.remember(_identity(job, task, public, source))
        ledger = Ledger(task.budget, lab.folder / "ledger.jsonl")
        try:
            for statement in assumptions_of(job, task.synthesizer):
                ledger.assume(statement)
            noise = noise or Noise()
            records = source.crew(job) if isinstance(source, Shards) else source
            private = PrivateImages.seal(records, ledger, folder=lab.folder, noise=noise, tape=tape)
            try:
                lab.note_bad_files(source)
                sampler = task.synthesizer.fit(private, public)
            finally:
                private.close()
            images = balanced_sample(sampler, task.spec, job.count or task.spec.count)
            certificate = certify(job, task, ledger, noise, images, ledger.assumptions)
            written = write_release(out, images, certificate, export_folders=job.folders)
            if after is not None:
                after(sampler)
            return written
        finally:
            ledger.close()
            if not ledger.charges:
                lab.forget()


def _identity(job: Job, task: Task, public: Images | None, source: Source) -> dict[str, Any]:
    """What must be the same when a run is resumed, and all that it takes to sample again from its answers."""
    identity = {
        **asdict(job),
        "budget": asdict(task.budget),
        "spec": asdict(task.spec),
        "public_images": fingerprint(public),
        "hyperparameters": asdict(task.synthesizer),  # type: ignore[call-overload]
    }
    if (network := network_of(task.synthesizer)) is not None:  # left out where there is none, as in older runs
        identity["public_network"] = network
    if isinstance(source, Shards):
        return {**identity, "shards": source.identity()}
    for name in SHARD_FIELDS:  # older versions, whose runs may be resumed, did not have them
        del identity[name]
    return identity


def fingerprint(images: Images | None) -> str | None:
    """The same for the same images with the same labels."""
    if images is None:
        return None
    parts = (str(images.classes).encode(), images.pixels.numpy().tobytes(), images.labels.numpy().tobytes())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def public_images_of(job: Job, spec: Spec) -> Images | None:
    """The public images in the private data's shape."""
    return None if job.public is None else data.load(job.public, _public_reading(spec))


def _public_reading(spec: Spec) -> Reading:
    return Reading(size=spec.height, mode="grey" if spec.channels == 1 else "colour")


def balanced_sample(sampler: contracts.Sampler, spec: Spec, count: int) -> Images:
    """A balanced set: labels cycle through the classes, so they do not depend on the private class sizes."""
    import torch

    labels = torch.arange(count) % len(spec.classes)
    return sampler(labels)


def refuse_bad_target(out: Path, where: str) -> None:
    """A release may neither overwrite something nor be inside the private data."""
    if os.path.lexists(out):
        raise UsageError(
            "Expected a new folder for the release, got one that exists.",
            where=out,
            fix="choose another --out, or remove it yourself",
        )
    source = Path(where).absolute()
    if source.exists() and (source.resolve() == out.resolve() or source.resolve() in out.resolve().parents):
        raise UsageError(
            "Expected a folder outside the private data for the release.", where=out, fix="choose another --out"
        )
    if not out.parent.is_dir():
        raise UsageError("Expected the folder around --out to exist.", where=out.parent, fix="create it first")
    if out.name.endswith(".lab"):
        raise UsageError(
            "Expected a release name that does not end in .lab, which marks lab folders.",
            where=out,
            fix="choose another --out",
        )
    if len(os.fsencode(out.name)) > LONGEST_NAME:
        raise UsageError(
            f"Expected a release name of at most {LONGEST_NAME} bytes.", where=out, fix="choose a shorter --out"
        )
