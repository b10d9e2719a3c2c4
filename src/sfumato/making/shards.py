"""Private data in shards: a folder whose entries are data sets of their own, summed over by several processes.

A sum over shards is the sum over their records in the order of the shards' names, so that a release does not depend
on how the data is divided into shards.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato import data
from sfumato.contracts import Asking, Reading
from sfumato.errors import SfumatoError, UsageError, printable
from sfumato.privacy import NoisyChoice, ShardedAnswers, ShardedSums
from sfumato.values import Source, Spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.making.charged_run import Request
    from sfumato.privacy import GlooCrew, RayCrew

_SHARD_FILES = (".parquet", ".npz")
_SPLIT = re.compile(r"^(train|test|val|valid|validation)(?:[-._]|$)")
_WHAT = "a folder of shards (Parquet files, .npz files or data set folders)"


def is_sharded(job: Request) -> bool:
    """Whether several processes read the data; refuses settings that contradict each other."""
    if job.engine not in ("local", "ray"):
        raise UsageError(f"Expected the engine local or ray, got {job.engine!r}.", fix="leave the engine out")
    if job.processes < 1:
        raise UsageError(
            f"Expected at least 1 process, got {job.processes}.",
            fix="leave the number of processes out, or give as many as there are shards, or fewer",
        )
    if job.engine == "ray" and job.processes > 1:
        raise UsageError(
            f"Expected 1 process with the engine ray, which has workers of its own, got {job.processes}.",
            fix="leave the number of processes out",
        )
    if job.address is not None and job.engine != "ray":
        raise UsageError("Expected the engine ray for the address of a cluster, got local.", fix="choose engine ray")
    return job.engine == "ray" or job.processes > 1


def open_records(job: Request) -> Source:
    """The job's private data, opened: one data set, or shards."""
    if not is_sharded(job):
        return data.open_source(job.data, job.reading)
    shards = Shards(job.data, job.reading)
    if len(shards.names) < job.processes:
        raise UsageError(
            f"Expected at least {job.processes} shards for {job.processes} processes, got {len(shards.names)}.",
            where=job.data,
            fix="use fewer processes, or divide the data into more shards",
        )
    return shards


def refuse_other_than_sums(asking: Asking, spec: Spec, name: str) -> None:
    """Data in shards answers sums alone, which a plan shows before anything is charged."""
    for mechanism in asking.plan(spec):
        if isinstance(mechanism, NoisyChoice | ShardedAnswers | ShardedSums):
            what = "choices" if isinstance(mechanism, NoisyChoice) else "teachers"
            raise UsageError(
                f"Expected a method that asks for sums alone of data in shards, got {name}, which needs the "
                f"records in one place for its {what}.",
                fix="choose another method, or leave engine and processes out",
            )


class Shards:
    """All shards of a folder as one source: their records one after the other."""

    def __init__(self, where: str, reading: Reading) -> None:
        entries = _entries(Path(where), reading.split)
        self.name = Path(where).resolve().stem
        self.names = [entry.name for entry in entries]
        self._openers = [_Opener((str(entry.absolute()),), reading) for entry in entries]
        sources = [_opened(opener, Path(where)) for opener in self._openers]
        self.counts = [source.spec.count for source in sources]
        self.spec = _common_spec(sources, self.names, where)
        self.bad = [record for source in sources for record in getattr(source, "bad", [])]

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for opener in self._openers:
            yield from opener().chunks()

    def identity(self) -> list[dict[str, Any]]:
        """What must be the same when a run is resumed."""
        return [{"name": name, "count": count} for name, count in zip(self.names, self.counts, strict=True)]

    def crew(self, job: Request) -> RayCrew | GlooCrew:
        """The processes that sum over the shards, started or connected to."""
        from sfumato.privacy import GlooCrew, RayCrew  # most runs need neither

        if job.engine == "ray":
            return RayCrew(self._openers, address=job.address)
        return GlooCrew(_groups(self._openers, job.processes))


class _Opener:
    """Opens neighbouring shards as one source. In its own process it does so once; another process opens them anew."""

    def __init__(self, paths: tuple[str, ...], reading: Reading) -> None:
        self.paths = paths
        self.reading = reading
        self._source: Source | None = None

    def __call__(self) -> Source:
        if self._source is None:
            sources = [data.open_source(path, self.reading) for path in self.paths]
            self._source = sources[0] if len(sources) == 1 else _Joined(sources)
        return self._source

    def __reduce__(self) -> tuple[Any, ...]:
        return _Opener, (self.paths, self.reading)


class _Joined:
    """Several sources of the same shape and classes, one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self.name = sources[0].name
        self.spec = replace(sources[0].spec, count=sum(source.spec.count for source in sources))

    def chunks(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        for source in self._sources:
            yield from source.chunks()


def _groups(openers: Sequence[_Opener], processes: int) -> list[_Opener]:
    """As many openers as processes, each of neighbouring shards, so that the order of the records stays."""
    edges = [len(openers) * number // processes for number in range(processes + 1)]
    parts = [openers[start:end] for start, end in itertools.pairwise(edges)]
    return [_Opener(tuple(path for opener in part for path in opener.paths), part[0].reading) for part in parts]


def _entries(folder: Path, split: str) -> list[Path]:
    """The shards of a folder by name; of entries that are named after splits, those of the wanted one."""
    if not folder.is_dir():
        got = "one file" if folder.is_file() else "something else"
        raise UsageError(f"Expected {_WHAT}, got {got}.", where=folder, fix="leave engine and processes out")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    others = [e.name for e in entries if not (e.is_dir() or (e.is_file() and e.suffix.casefold() in _SHARD_FILES))]
    if others or not entries:
        got = f"one with {printable(others[0])}" if others else "an empty one"
        raise UsageError(
            f"Expected {_WHAT} and nothing else in it, got {got}.",
            where=folder,
            fix="keep the shards in a folder of their own",
        )
    splits = {entry: found[1] for entry in entries if (found := _SPLIT.match(entry.name.casefold()))}
    if not splits:
        return entries
    wanted = [entry for entry in entries if splits.get(entry) == split]
    if not wanted or len(splits) < len(entries):
        raise UsageError(
            f"Expected shards of the {split} split in names like {split}-00000, or no split in any name, got others.",
            where=folder,
            fix="rename the shards, or move those of other splits elsewhere",
        )
    return wanted


def _opened(opener: _Opener, folder: Path) -> Source:
    try:
        return opener()
    except SfumatoError as error:
        name = printable(Path(opener.paths[0]).name)
        reason = error.what.rstrip(".")
        raise type(error)(
            f"Expected {_WHAT}, got an entry that cannot be read as one: {name} ({reason}).",
            where=folder,
            fix=error.fix or "leave engine and processes out for a single data set",
        ) from error


def _common_spec(sources: Sequence[Source], names: Sequence[str], where: str) -> Spec:
    first = replace(sources[0].spec, count=0)
    for source, name in zip(sources, names, strict=True):
        if replace(source.spec, count=0) != first:
            raise UsageError(
                f"Expected shards with the same shape and classes, got others in {printable(name)} than in "
                f"{printable(names[0])}.",
                where=where,
                fix="list the classes with --classes, and fix --size and --mode",
            )
    return replace(first, count=sum(source.spec.count for source in sources))
