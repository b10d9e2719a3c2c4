"""One charged run of a method or learner: lab, ledger, sealed data, fit, close; then what is written of the result."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from sfumato import data
from sfumato.contracts import Asking, Reading
from sfumato.errors import UsageError
from sfumato.lab.folder import Lab
from sfumato.making.certify import assumptions_of, network_of
from sfumato.making.settings import with_settings
from sfumato.making.shards import Shards, is_sharded, refuse_other_than_sums
from sfumato.privacy import Budget, Ledger, Noise, PrivateImages, Tape
from sfumato.values import Images, Source, Spec

MOST_EPSILON = 100  # loss distributions of more fill the memory and overflow
SHARD_FIELDS = ("engine", "address", "processes")  # of a request; in run.json only if the data is in shards
LONGEST_NAME = 200  # bytes; file systems allow 255, and `.lab` and `.tmp-<pid>` are put behind it

_A = TypeVar("_A", bound=Asking)


class Request(Protocol):
    """What a job of either kind has."""

    @property
    def data(self) -> str: ...
    @property
    def asked_by(self) -> str: ...  # the name of the method or learner
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float | None: ...
    @property
    def public(self) -> str | None: ...
    @property
    def reading(self) -> Reading: ...
    @property
    def settings(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def engine(self) -> Literal["local", "ray"]: ...
    @property
    def address(self) -> str | None: ...
    @property
    def processes(self) -> int: ...


def budget_of(job: Request, spec: Spec) -> Budget:
    budget = Budget.of(job.epsilon, count=spec.count, delta=job.delta)
    if MOST_EPSILON < job.epsilon < math.inf:
        raise UsageError(
            f"Expected epsilon up to {MOST_EPSILON}, got {job.epsilon:g}; beyond, it cannot be counted.",
            fix="use less, or inf for a release that is not private",
        )
    return budget


def asked_with_settings(asking: _A, job: Request, spec: Spec) -> _A:
    """The method or learner as the job wants it; raises if the two do not fit."""
    asking = with_settings(asking, dict(job.settings))
    if asking.public_images == "needed" and job.public is None:
        raise UsageError(f"Expected public images for {job.asked_by}.", fix="name them with --public")
    if asking.public_images == "unused" and job.public is not None:
        raise UsageError(f"{job.asked_by} makes no use of public images.", fix="leave --public out")
    network_of(asking)  # refuses what a certificate could not name
    if is_sharded(job):
        refuse_other_than_sums(asking, spec, job.asked_by)
    if job.public is not None:
        data.open_source(job.public, _public_reading(spec))
    return asking


def charged_run(
    job: Request,
    asking: Any,
    budget: Budget,
    source: Source,
    public: Images | None,
    out: Path,
    *,
    write: Callable[[Any, Ledger, Noise], Path],
    noise: Noise | None = None,
    tape: Tape | None = None,
) -> Path:
    """Fit on the sealed data, close it for good, then let `write` make a release of the result; killed, it resumes."""
    with Lab.beside(out) as lab:
        lab.remember(_identity(job, asking, budget, public, source))
        ledger = Ledger(budget, lab.folder / "ledger.jsonl")
        try:
            for statement in assumptions_of(job, asking):
                ledger.assume(statement)
            noise = noise or Noise()
            records = source.crew(job) if isinstance(source, Shards) else source
            private = PrivateImages.seal(records, ledger, folder=lab.folder, noise=noise, tape=tape)
            try:
                lab.note_bad_files(source)
                result = asking.fit(private, public)
            finally:
                private.close()
            return write(result, ledger, noise)
        finally:
            ledger.close()
            if not ledger.charges:
                lab.forget()


def _identity(job: Request, asking: Asking, budget: Budget, public: Images | None, source: Source) -> dict[str, Any]:
    """What must be the same when a run is resumed, and all that it takes to sample again from its answers."""
    identity = {
        **asdict(job),  # type: ignore[call-overload]
        "budget": asdict(budget),
        "spec": asdict(source.spec),
        "public_images": fingerprint(public),
        "hyperparameters": asdict(asking),  # type: ignore[call-overload]
    }
    if (network := network_of(asking)) is not None:  # left out where there is none, as in older runs
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


def public_images_of(job: Request, spec: Spec) -> Images | None:
    """The public images in the private data's shape."""
    return None if job.public is None else data.load(job.public, _public_reading(spec))


def _public_reading(spec: Spec) -> Reading:
    return Reading(size=spec.height, mode="grey" if spec.channels == 1 else "colour")


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
