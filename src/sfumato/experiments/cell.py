"""One cell of a comparison: make its release, judge it, and put both into the store; the same on every engine."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sfumato import contracts, data
from sfumato.contracts import Sampler
from sfumato.errors import SfumatoError
from sfumato.experiments.recipe import StudentSetting, measure_key, metric_with
from sfumato.experiments.recipe_format import MetricSettings
from sfumato.judging.evaluate import score_release
from sfumato.judging.student import train_student
from sfumato.lab.scores import versions
from sfumato.lab.store import Store, Stored
from sfumato.making.release import Job, make_release
from sfumato.progress import heard_by
from sfumato.release import read_certificate

MADE = "made"  # the measure that every cell has: what its release cost


class Runnable(Protocol):
    """What an engine is handed: it can be sent to another process, and a second run of it finds nothing to do."""

    @property
    def name(self) -> str: ...

    def stored(self, store: Path) -> Stored:
        """Its folder in the store."""

    def run(self, store: Path) -> Outcome:
        """Do what is not in the store yet."""


@dataclass(frozen=True, slots=True)
class CellJob:
    """A cell as an engine is handed it: everything in it can be sent to another machine."""

    name: str  # for people
    inputs: dict[str, Any]  # what it is filed under
    job: Job
    measures: tuple[str, ...]
    students: tuple[StudentSetting, ...] = ()
    metrics: Mapping[str, MetricSettings] = field(default_factory=dict)  # settings of some

    def stored(self, store: Path) -> Stored:
        return Store(store).cell(self.inputs)

    def run(self, store: Path) -> Outcome:
        return run_cell(store, self)

    def wanted(self) -> tuple[str, ...]:
        """The names under which its measures are filed."""
        others = tuple(measure_key(name, self.metrics.get(name, {})) for name in self.measures if name != "student")
        students = tuple(s.key for s in self.students) if "student" in self.measures else ()
        return (MADE, *others, *students)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a cell; `problem` is a sentence, empty if there was none."""

    name: str
    digest: str
    problem: str = ""


def run_cell(store: Path, cell: CellJob) -> Outcome:
    """Whatever the cell lacks is made; a second call finds nothing to do."""
    stored = cell.stored(store)
    try:
        if any(not stored.has(name) for name in cell.wanted()):
            with stored.lab, heard_by(stored.say):
                _fill(stored, cell)
        return Outcome(cell.name, stored.digest)
    except SfumatoError as error:
        return Outcome(cell.name, stored.digest, sentence(error))


def _fill(stored: Stored, cell: CellJob) -> None:
    job = cell.job
    if not stored.release.exists():
        with measured() as cost:
            make_release(job, stored.release, after=_judge(stored, cell))
        stored.add(MADE, {**cost, **_guarantee(stored.release)})
    # After a stop between release and evaluation, values that only the sampler had are lost: None is stored.
    for name in (MADE, "teacher", "losses"):
        if name in cell.wanted() and not stored.has(name):
            stored.add(name, {"value": None, **_guarantee(stored.release)} if name == MADE else {"value": None})
    for name in cell.measures:
        key = measure_key(name, cell.metrics.get(name, {}))
        if name in contracts.names("metrics") and not stored.has(key):
            metric = metric_with(name, cell.metrics.get(name, {}))
            with measured() as cost:
                (score,) = score_release(
                    stored.release, job.data, {name: metric}, reading=job.reading, public=job.public
                )
            stored.add(key, {**asdict(score), **cost, "judges": metric.judges})
    for s in cell.students:
        if s.key in cell.wanted() and not stored.has(s.key):
            with measured() as cost:
                score = train_student(
                    stored.release,
                    job.data,
                    arch=s.arch,
                    seeds=s.seeds,
                    schedule=s.schedule,
                    loss=s.loss,
                    temperature=s.temperature,
                    reading=job.reading,
                )
            stored.add(s.key, {**asdict(score), **cost, "judges": "utility"})


@contextmanager
def measured() -> Iterator[dict[str, Any]]:
    """What a piece of work takes: wall and processor seconds, peak memory, and the versions that did it."""
    _forget_peak()
    cost: dict[str, Any] = {}
    wall, processor = time.perf_counter(), time.process_time()
    yield cost
    cost |= {
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "peak_mb": _peak_mb(),
        "versions": versions(),
    }


def _forget_peak() -> None:
    """Where the system allows it, the peak is that of this piece of work and not of those before it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mb() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _guarantee(release: Path) -> dict[str, Any]:
    certificate = read_certificate(release)
    return {"guarantee": certificate.guarantee.level, "spent": certificate.guarantee.epsilon}


def _judge(stored: Stored, cell: CellJob) -> Callable[[Sampler], None]:
    """Stores what only the sampler has: its teacher's accuracy, and its loss history (the measure `losses`)."""

    def judge(sampler: Sampler) -> None:
        if "losses" in cell.measures:
            stored.add("losses", {"value": getattr(sampler, "loss_history", None)})
        if "teacher" in cell.measures:
            classify = getattr(sampler, "classify", None)
            stored.add("teacher", {"value": None} if classify is None else _accuracy(classify, cell.job))

    return judge


def _accuracy(classify: Callable[[Any], Any], job: Job) -> dict[str, Any]:
    """The teacher on the private test images; the release is on disk by now."""
    split = data.has_split(job.data, "test")
    test = data.load(job.data, replace(job.reading, split="test" if split else "train"))
    right = (classify(test.pixels).argmax(1) == test.labels).double().mean().item()
    return {"value": right, "standard_error": None, "details": {"test_split": split}}


def sentence(error: SfumatoError) -> str:
    return f"{error.what} To fix it: {error.fix}." if error.fix else error.what
