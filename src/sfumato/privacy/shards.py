"""Private records in several places: workers sum over them, and the driver, which has the ledger, adds noise once.

Guarantee: workers send exact sums on the lattice to the driver and nowhere else; the ledger, the tape, the sampling
and the one draw of noise belong to the driver, so that a lost worker costs time and never privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from sfumato.errors import DataError, UsageError
from sfumato.privacy.noise import Noise
from sfumato.privacy.rows import Rows
from sfumato.privacy.tape import Tape
from sfumato.privacy.vault import Array, Records, Vault, spec_of_features
from sfumato.values import Source, Spec

Opener = Callable[[], Source]  # opens one shard, on whichever machine it is called
Feature = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Question:
    """What every worker is asked about its records."""

    rows: Rows
    width: int  # of the answer
    view: int  # which map of the images, counted from 1; 0 is the images themselves
    feature: Feature | None  # that map
    clip: bool
    microbatch: int | None

    def of(self, vault: Vault, included: NDArray[np.bool_]) -> NDArray[np.int64]:
        return vault.total(self.rows, included, clip=self.clip, microbatch=self.microbatch)


@runtime_checkable
class Crew(Protocol):
    """Workers that can open their shards."""

    spec: Spec  # of all shards together
    counts: tuple[int, ...]  # how many records each of them has

    def add_up(self, question: Question, included: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        """The sum of all shards' exact sums; `included` has one array for each shard."""

    def close(self) -> None:
        """End the workers."""


def spec_of_shards(openers: Sequence[Opener]) -> tuple[Spec, tuple[int, ...]]:
    """The spec of all records, and how many each shard has; shards must be alike."""
    specs = [opener().spec for opener in openers]
    if not specs:
        raise UsageError("Expected at least one shard, got none.")
    alike = {replace(spec, count=0) for spec in specs}
    if len(alike) > 1:
        raise DataError(
            f"Expected shards with the same shape and classes, got {len(alike)} kinds.",
            fix="list the classes, and fix size and mode",
        )
    counts = tuple(spec.count for spec in specs)
    return replace(specs[0], count=sum(counts)), counts


def streamed(source: Source, question: Question, included: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The answer of one shard in one pass, a chunk at a time: nothing is kept and nothing is written."""
    total = np.zeros((), np.int64)
    done = 0
    for pixels, labels in source.chunks():
        vault = Vault(_Chunk(pixels, labels, source.spec), folder=None, noise=Noise(), tape=Tape())
        seen = vault if question.feature is None else vault.derive(question.feature)
        total = total + question.of(seen, included[done : done + len(labels)])
        done += len(labels)
    if done != len(included):
        raise DataError(f"Expected {len(included)} records, got {done}.", where=source.name, fix="run again")
    return total


class _Chunk:
    """Some records of a source as a source."""

    name = "chunk"

    def __init__(self, pixels: Array, labels: Array, spec: Spec) -> None:
        self.spec = replace(spec, count=len(labels))
        self._records = (pixels, labels)

    def chunks(self) -> Iterator[tuple[Array, Array]]:
        yield self._records


class ShardedVault(Vault):
    """A vault whose records are elsewhere: its crew computes sums, and it answers nothing else."""

    def __init__(self, crew: Crew, *, noise: Noise, tape: Tape, feature: Feature | None = None, view: int = 0) -> None:
        self.spec = crew.spec if feature is None else spec_of_features(crew.spec, vmap(feature))
        self.closed = False
        self.noise = noise
        self.tape = tape
        self.derived = feature is not None
        self.folder = None
        self._derived = []
        self._crew = crew
        self._feature = feature
        self._view = view
        self.labels = np.zeros(0, np.int64)
        self.present = np.zeros(0, bool)
        self._records = Records((0,), np.uint8, file=None)

    def total(
        self, rows: Rows, included: NDArray[np.bool_], *, clip: bool, microbatch: int | None
    ) -> NDArray[np.int64]:
        width = rows.shape(self.spec).numel()
        parts = np.split(included, np.cumsum(self._crew.counts)[:-1])
        return self._crew.add_up(Question(rows, width, self._view, self._feature, clip, microbatch), parts)

    def derive(self, feature: Feature) -> Vault:
        view = len(self._derived) + 1
        derived = ShardedVault(self._crew, noise=self.noise, tape=self.tape, feature=feature, view=view)
        self._derived.append(derived)
        return derived

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        raise UsageError(
            "Expected a question that is a sum: data in shards answers no other.",
            fix="bring the shards to one machine for choices and for teachers",
        )

    def close(self) -> None:
        super().close()
        if not self.derived:
            self._crew.close()
