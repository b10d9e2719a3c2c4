"""Engines that run cells: processes on this machine, or a Ray cluster; all state is in the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from sfumato.cluster import ATTEMPTS, Cluster
from sfumato.errors import UsageError
from sfumato.experiments.cell import Outcome, Runnable

EngineName = Literal["local", "ray"]
Engine = Callable[[Path, Sequence[Runnable]], Iterator[Outcome]]


def engine_of(name: EngineName, *, workers: int | None = None, address: str | None = None) -> Engine:
    if name == "local":
        return lambda store, cells: local(store, cells, workers=1 if workers is None else workers)
    if name == "ray":
        return lambda store, cells: ray_cluster(store, cells, address=address, workers=workers)
    raise UsageError(f"Expected the engine local or ray, got {name!r}.", fix="leave the engine out for local")


def local(store: Path, cells: Sequence[Runnable], *, workers: int = 1) -> Iterator[Outcome]:
    """One cell after the other in this process, or in so many processes that share the cores."""
    if not 1 <= workers <= 1_000:
        raise UsageError(f"Expected 1 to 1000 workers, got {workers}.", fix="give one for each core, or none")
    if workers == 1:
        for cell in cells:
            yield cell.run(store)
        return
    threads = max(1, cores() // workers)
    attempts = dict.fromkeys(range(len(cells)), 0)
    while attempts:  # a pool whose worker was killed is broken as a whole: a new one goes on with the rest
        with ProcessPoolExecutor(workers, get_context("spawn"), _settle, (threads,)) as pool:
            running: dict[Future[Outcome], int] = {pool.submit(cells[n].run, store): n for n in attempts}
            while running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    number = running.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        attempts[number] += 1
                        if attempts[number] < ATTEMPTS:
                            continue
                        outcome = Outcome(cells[number].name, "", "Its worker was lost, again and again.")
                    del attempts[number]
                    yield outcome


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settle(threads: int) -> None:
    """A worker's share of the cores."""
    import torch

    torch.set_num_threads(threads)


def ray_cluster(
    store: Path, cells: Sequence[Runnable], *, address: str | None = None, workers: int | None = None
) -> Iterator[Outcome]:
    """One task for each cell on a Ray cluster, or on a local one that is started for it.

    Lost workers and nodes are tried again. A cell that is tried again resumes from its ledger in the store, which all
    nodes must see under the same path; charges of a lost attempt stay charged.
    """
    with Cluster(address=address, workers=workers) as cluster:
        ray, task = cluster.ray, cluster.task(_on_a_node)
        waiting: dict[Any, Runnable] = {task.remote(str(store), cell): cell for cell in cells}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(done)
            try:
                yield ray.get(done)
            except ray.exceptions.RayError as error:
                yield Outcome(cell.name, "", f"Its worker was lost ({type(error).__name__}).")


def _on_a_node(store: str, cell: Runnable) -> Outcome:
    _settle(1)
    return cell.run(Path(store))
