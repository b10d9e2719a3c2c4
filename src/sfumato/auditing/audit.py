"""Is our own implementation as private as it claims? A method is run on fixture data and checked against its ledger.

Record and replay on neighbours with the whole release compared byte by byte, the noise and the sampling against
what was charged, canaries through the core in the method's own configuration and in one with less noise, and the
ledger against what was really drawn and against a second accountant.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

from sfumato import contracts
from sfumato.auditing import canaries, fixture
from sfumato.auditing.canaries import CanaryAudit
from sfumato.auditing.observer import (
    Finding,
    RunObserver,
    drawn_finding,
    independence_finding,
    noise_finding,
    sampling_findings,
    verdict,
)
from sfumato.contracts import Reading
from sfumato.errors import UsageError
from sfumato.making.release import Job, make_release, plan_release
from sfumato.making.settings import with_settings
from sfumato.privacy import (
    Budget,
    Charge,
    GaussianSum,
    Ledger,
    Mechanism,
    NoisyChoice,
    Recording,
    ShardedAnswers,
    ShardedSums,
)
from sfumato.release import read_certificate, verify
from sfumato.release.recount import recount
from sfumato.values import Spec

__all__ = ["PARTS", "Finding", "audit_method"]

PARTS = ("replay", "noise", "sampler", "ledger", "canaries")
SMALL = {  # at most, in audits
    "rounds": 24,
    "epochs": 1,
    "frequencies": 200,
    "hidden": 64,
    "batch": 64,
    "width": 4,
    "generator_steps": 3,
    "generated_steps": 3,
}
RELEASED = 12  # images


def audit_method(
    name: str = contracts.DEFAULT_METHOD,
    *,
    epsilon: float = 1.0,
    confidence: float = 0.999,
    settings: tuple[tuple[str, str], ...] = (),
    parts: Collection[str] = PARTS,
    kinds: Collection[str] | None = None,
) -> list[Finding]:
    """All findings about a method that need no private data.

    `settings` are hyperparameters beside those that make it small, `kinds` the neighbours to try (all of them).
    """
    if not (0 < epsilon < math.inf and 0.5 < confidence < 1):
        raise UsageError(
            f"Expected a finite epsilon > 0 and a confidence from 0.5 to 1, got {epsilon}, {confidence}.",
            fix="leave them out for their defaults",
        )
    with tempfile.TemporaryDirectory(prefix="sfumato-audit-") as folder:
        test_run = _TestRun(Path(folder), name, epsilon, settings)
        plan = plan_release(test_run.job(test_run.data))  # raises if the request is wrong
        run = test_run.record()
        if isinstance(run, Finding):
            return [run]
        found: list[Finding] = []
        if "replay" in parts:
            found += test_run.replay(run, kinds)
        if "noise" in parts:
            found += [noise_finding(run.observer, run.charges), independence_finding(run.observer, run.charges)]
        if "sampler" in parts:
            found += sampling_findings(run.observer, run.charges)
        if "ledger" in parts:
            found += [drawn_finding(run.observer, run.charges, run.begun), _accounted(run)]
        if "canaries" in parts:
            found += canary_findings(plan.mechanisms, confidence)
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run: its release, what was charged and begun, and the observer's record."""

    release: Path
    charges: tuple[Charge, ...]
    begun: tuple[int, ...]
    observer: RunObserver
    recording: Recording


class _TestRun:
    """A method with small settings, and a folder to run it in."""

    def __init__(self, folder: Path, name: str, epsilon: float, settings: tuple[tuple[str, str], ...]) -> None:
        self.folder = folder
        self.name = name
        self.epsilon = epsilon
        self.runs = 0
        self.data = fixture.records()
        spec = Spec(fixture.COUNT, 1, fixture.SIDE, fixture.SIDE, fixture.CLASSES)
        method = contracts.find("methods", name).for_task(spec, Budget.of(epsilon, count=fixture.COUNT))
        self.settings = (*_small(method), *settings)
        needed = with_settings(method, dict(self.settings)).public_images == "needed"
        self.public = str(fixture.public_pictures().save(folder / "public.npz")) if needed else None

    def job(self, data: fixture.Records) -> Job:
        self.runs += 1
        path = data.save(self.folder / f"data{self.runs}.npz")
        return Job(
            str(path),
            self.name,
            self.epsilon,
            public=self.public,
            count=RELEASED,
            settings=self.settings,
            reading=Reading(classes=fixture.CLASSES),
        )

    def make(self, data: fixture.Records, observer: RunObserver) -> Path:
        noise, tape = observer.pair()
        return make_release(self.job(data), self.folder / f"release{self.runs}", noise=noise, tape=tape)

    def record(self) -> Run | Finding:
        """The run that all neighbours are compared with, or a finding that says why it failed."""
        recording = Recording()
        observer = RunObserver(*recording.recorder())
        try:
            release = self.make(self.data, observer)
        except Exception as error:  # noqa: BLE001 - a method that fails on odd records says something about them
            return Finding("same control flow", False, f"the run on the fixture failed: {_message(error)}")
        ledger = Ledger(_budget(release), release.with_name(release.name + ".lab") / "ledger.jsonl")
        try:
            paid = [c.mechanism.rounds * c.mechanism.draws for c in ledger.charges]
            begun = tuple(p - ledger.unbegun(c) for p, c in zip(paid, ledger.charges, strict=True))
            return Run(release, ledger.charges, begun, observer, recording)
        finally:
            ledger.close()

    def replay(self, run: Run, kinds: Collection[str] | None) -> list[Finding]:
        """Replay the recorded answers on every neighbouring data set: nothing else may differ."""
        moved: dict[str, float] = {}
        too_far: list[str] = []
        flow: list[str] = []
        bytes_differ: list[str] = []
        known = fixture.neighbours(self.data)
        for kind in known if kinds is None else kinds:
            run.recording.violations.clear()
            run.recording.worst = 0.0
            observer = RunObserver(*run.recording.player())
            try:
                release = self.make(known[kind], observer)
            except Exception as error:  # noqa: BLE001 - a crash on one of two neighbours distinguishes them
                flow.append(f"{kind}: {_message(error)}")
                continue
            violations = run.recording.violations
            moved[kind] = run.recording.worst
            too_far += [f"{kind}: {v}" for v in violations if not v.startswith("control flow")]
            flow += [f"{kind}: {v}" for v in violations if v.startswith("control flow")][:1]
            flow += [f"{kind}: other questions"] if observer.flow != run.observer.flow else []
            bytes_differ += [f"{kind}: {name}" for name in _differing(run.release, release)]
        most = max(moved.values(), default=0.0)
        tried = f"{len(moved)} neighbours"
        return [
            verdict("moves within its reach", too_far, f"{most:.4f} of it at most, over {tried}", moved),
            verdict("same control flow", flow, f"the same questions in the same order on {tried}", {}),
            verdict("same release", bytes_differ, f"byte by byte, on {tried}", {"files": len(_files(run.release))}),
        ]


def _small(method: contracts.Synthesizer) -> tuple[tuple[str, str], ...]:
    """Settings for seconds instead of minutes; a few steps of everything, so that every question is asked."""
    known = {f.name: getattr(method, f.name) for f in fields(method)}  # type: ignore[arg-type]
    less = [(name, str(most)) for name, most in SMALL.items() if type(known.get(name)) is int and known[name] > most]
    return (*less, ("steps", "3")) if type(known.get("steps")) is int else tuple(less)


def _budget(release: Path) -> Budget:
    stated = read_certificate(release).budget
    return Budget(float("inf") if stated.epsilon is None else stated.epsilon, stated.delta)


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _differing(one: Path, other: Path) -> list[str]:
    first, second = _files(one), _files(other)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _accounted(run: Run) -> Finding:
    """The release verifies, and the second accountant finds the epsilon that is claimed."""
    certificate = read_certificate(run.release)
    claimed = certificate.guarantee.epsilon or 0.0
    problems = [f"{check.name}: {check.detail}" for check in verify(run.release).checks if not check.ok]
    described = [charge.mechanism.to_dict() for charge in run.charges]
    if described != [asked.described() for asked in certificate.mechanisms]:
        problems.append("the certificate names other mechanisms than the ledger")
    again = recount(described, certificate.guarantee.delta)
    if not 0.98 * again - 2e-3 <= claimed <= again * 1.02 + 2e-3:
        problems.append(f"epsilon {claimed:.4f} is claimed where a second accountant finds {again:.4f}")
    fine = f"epsilon {claimed:.4f} claimed, {again:.4f} by the second accountant; the release verifies"
    return verdict("ledger and certificate", problems, fine, {"claimed": claimed, "recounted": again})


def canary_findings(mechanisms: Sequence[Mechanism], confidence: float) -> list[Finding]:
    """Canaries through the core: with the method's own mechanisms, and with less noise, where a bound is tighter."""
    sums = [m for m in mechanisms if isinstance(m, GaussianSum)]
    found = []
    if sums:
        own = [canaries.shortened(m) for m in sums]
        less_noisy = [canaries.less_noisy(m) for m in sums if m.sampling < 1]
        found.append(_canaries("canaries, as planned", lambda: canaries.audit_sums(own, confidence=confidence)))
        if less_noisy:
            audit = partial(canaries.audit_sums, less_noisy[:1], confidence=confidence)
            found.append(_canaries("canaries, sampled", audit))
    for m in mechanisms:
        if isinstance(m, ShardedAnswers | ShardedSums):
            few = replace(m, rounds=min(m.rounds, 6), noise_multiplier=0.5)
            found.append(_canaries("canaries, sharded", lambda few=few: canaries.audit_shards(few)))  # type: ignore[misc]
            if isinstance(m, ShardedAnswers):
                one = replace(few, shards=min(m.shards, 8), rounds=64, noise_multiplier=2.0)
                together = partial(canaries.audit_shards, one, together=True, canaries=2 * canaries.LONG)
                found.append(_canaries("canaries, in one batch", together))
        elif isinstance(m, NoisyChoice):
            clear = replace(m, noise_multiplier=1.0)
            found.append(_canaries("canaries, chosen", lambda clear=clear: canaries.audit_choice(clear)))  # type: ignore[misc]
    return [*found, *reference_findings(confidence)]


def reference_findings(confidence: float) -> list[Finding]:
    """The reference configuration, counted and as rows forty times too long."""
    claim = canaries.Claim.of(canaries.REFERENCE)

    def asked(ask: Literal["histogram", "rows"]) -> Callable[[], CanaryAudit]:
        return lambda: canaries.audit_sums(canaries.REFERENCE, ask=ask, claim=claim, confidence=confidence)

    return [_canaries("canaries, counted", asked("histogram")), _canaries("canaries, bounded rows", asked("rows"))]


def _canaries(name: str, audit: Callable[[], CanaryAudit]) -> Finding:
    """A canary audit fails only if three runs of it fail.

    At a confidence of 0.999 each of the three bounds is wrong once in a thousand runs, so that three false alarms in a
    row happen less than once in thirty million audits.
    """
    for _ in range(3):
        seen = audit()
        if seen.passed:
            break
    return Finding(name, seen.passed, seen.detail, seen.values)
