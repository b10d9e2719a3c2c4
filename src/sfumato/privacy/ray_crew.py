"""Sums over shards by map and reduce on a Ray cluster: each task reads one shard once and returns its sum.

Guarantee: every shard is counted once in a sum, however often its task was lost and run again; tasks draw no noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.cluster import Cluster
from sfumato.errors import EnvironmentProblem, SfumatoError
from sfumato.privacy.shards import Opener, Question, spec_of_shards, streamed


class RayCrew:
    """Tasks on a cluster. Every shard is opened where its task runs, so its opener must work on every machine."""

    def __init__(self, openers: Sequence[Opener], *, address: str | None = None, workers: int | None = None) -> None:
        self.spec, self.counts = spec_of_shards(openers)
        self._openers = list(openers)
        self._cluster = Cluster(address=address, workers=workers)

    def add_up(self, question: Question, included: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        ray = self._cluster.ray
        task = self._cluster.task(_sum_of_one)
        asked = ray.put(question)
        waiting = [
            task.remote(opener, asked, np.packbits(part), len(part))
            for opener, part in zip(self._openers, included, strict=True)
        ]
        total = np.zeros((), np.int64)
        while waiting:  # each sum is added when it arrives, so that memory does not grow with the shards
            (done,), waiting = ray.wait(waiting, num_returns=1)
            try:
                total = total + ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, SfumatoError) else error) from None
            except ray.exceptions.RayError as error:
                raise EnvironmentProblem(
                    f"A worker was lost again and again ({type(error).__name__}).", fix="run again: it resumes"
                ) from error
        return total

    def close(self) -> None:
        self._cluster.close()


def _sum_of_one(opener: Opener, question: Question, packed: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    return streamed(opener(), question, np.unpackbits(packed, count=count).astype(bool))
