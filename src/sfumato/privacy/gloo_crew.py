"""Rounds of DP-SGD over shards in several processes, by torch.distributed's gloo: each keeps its own shard open.

The driver is rank 0 and has the first shard. A question goes to all, with the model's weights in it; every rank sums
the clipped gradients of its own sampled records; one reduction adds the sums up; noise is added to that, once.

Guarantee: the driver gets the sum of all ranks or an error, never a part of it; no rank but the driver draws noise.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, multiprocessing
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from sfumato.errors import EnvironmentProblem, SfumatoError, UsageError
from sfumato.privacy.noise import Noise
from sfumato.privacy.shards import Opener, Question, spec_of_shards
from sfumato.privacy.tape import Tape
from sfumato.privacy.vault import Vault

PATIENCE = datetime.timedelta(minutes=30)  # with a silent worker, before it counts as lost
GLANCE = 0.05  # seconds
DRIVER = 0
GO_HOME = b""


class GlooCrew:
    """A process for each shard but the first, which is the driver's.

    They are started on this machine; or, with a `meeting` (this-machine:port), awaited from others that run `serve`.
    What is sent is code and exact sums: the network between them must be as safe as the data.
    """

    def __init__(self, openers: Sequence[Opener], *, meeting: str = "") -> None:
        self.spec, self.counts = spec_of_shards(openers)
        host, _, port = (meeting or "127.0.0.1:0").partition(":")
        board = _board(host, int(port), driver=True)
        self._workers = [] if meeting else _started(openers, f"{host}:{board.port}")
        try:
            _await(board, len(openers), self._workers)
            _join(board, DRIVER, len(openers))
            self._shard = _Shard(openers[0])
        except BaseException:
            for worker in self._workers:
                worker.terminate()
            raise

    def add_up(self, question: Question, included: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        try:
            _tell(_packed(question))
            for rank, part in enumerate(included[1:], 1):
                distributed.send(torch.from_numpy(part.astype(np.uint8)), rank)
            return _added(self._shard, question, included[0])
        except RuntimeError as error:
            raise EnvironmentProblem(f"A worker was lost ({error}).", fix="run again: it resumes") from error

    def close(self) -> None:
        if not distributed.is_initialized():
            return
        try:
            _tell(GO_HOME)
        except RuntimeError:  # one of them is gone; the others notice
            for worker in self._workers:
                worker.terminate()
        distributed.destroy_process_group()
        self._shard.close()
        for worker in self._workers:
            worker.join()


def serve(opener: Opener, *, rank: int, ranks: int, meeting: str) -> None:
    """What a worker does: answer questions about its shard until it is sent home."""
    host, _, port = meeting.partition(":")
    board = _board(host, int(port), driver=False)
    board.set(_arrival(rank), "here")
    _join(board, rank, ranks)
    shard = _Shard(opener)
    try:
        while message := _heard():
            question: Question = _unpacked(message)
            included = torch.zeros(shard.count, dtype=torch.uint8)
            distributed.recv(included, DRIVER)
            _added(shard, question, included.numpy().astype(bool))
    finally:
        shard.close()
        distributed.destroy_process_group()


class _Shard:
    """A rank's own records, and the maps of them that were asked for."""

    def __init__(self, opener: Opener) -> None:
        self._images = Vault(opener(), folder=None, noise=Noise(), tape=Tape())
        self._views, self.count = {0: self._images}, self._images.spec.count

    def answer(self, question: Question, included: NDArray[np.bool_]) -> NDArray[np.int64]:
        if question.feature is not None and question.view not in self._views:
            self._views[question.view] = self._images.derive(question.feature)
        return question.of(self._views[question.view], included)

    def close(self) -> None:
        self._images.close()


def _added(shard: _Shard, question: Question, included: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The sum of all ranks' answers, at the driver; one that fails is heard of by all before they add up."""
    mine, problem = torch.zeros(question.width, dtype=torch.int64), None
    try:
        mine = torch.from_numpy(shard.answer(question, included))
    except (SfumatoError, RuntimeError, ValueError, TypeError) as error:
        problem = error
    failed = torch.tensor(int(problem is not None))
    distributed.all_reduce(failed)
    if problem is not None:
        raise problem
    if failed:
        raise EnvironmentProblem("A worker failed at this question.", fix="see what it printed; then run again")
    distributed.reduce(mine, DRIVER)
    return mine.numpy()


def _board(host: str, port: int, *, driver: bool) -> TCPStore:
    """Where ranks find each other."""
    if distributed.is_initialized():
        raise UsageError("Expected no process group of torch.distributed, got one.", fix="close it first")
    return TCPStore(host, port, is_master=driver, wait_for_workers=False, timeout=PATIENCE)


def _arrival(rank: int) -> str:
    return f"rank {rank}"


def _await(board: TCPStore, ranks: int, workers: Sequence[Any]) -> None:
    """Until all have come; one of ours that died on the way is not waited for."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not board.check([_arrival(rank) for rank in range(1, ranks)]):
        if time.monotonic() > deadline or any(not worker.is_alive() for worker in workers):
            raise EnvironmentProblem("Not all workers came.", fix="see what they printed; then run again")
        time.sleep(GLANCE)


def _join(board: TCPStore, rank: int, ranks: int) -> None:
    distributed.init_process_group("gloo", store=board, rank=rank, world_size=ranks, timeout=PATIENCE)


def _tell(message: bytes) -> None:
    """From the driver to all."""
    distributed.broadcast(torch.tensor(len(message)), DRIVER)
    if message:
        distributed.broadcast(torch.frombuffer(bytearray(message), dtype=torch.uint8), DRIVER)


def _heard() -> bytes:
    length = torch.tensor(0)
    distributed.broadcast(length, DRIVER)
    message = torch.zeros(int(length), dtype=torch.uint8)
    if length:
        distributed.broadcast(message, DRIVER)
    return message.numpy().tobytes()


def _started(openers: Sequence[Opener], where: str) -> list[Any]:
    context, threads = multiprocessing.get_context("spawn"), max(1, torch.get_num_threads() // len(openers))
    workers = []
    for rank, opener in enumerate(openers[1:], 1):
        work = (_packed(opener), rank, len(openers), where, threads)
        workers.append(context.Process(target=_served, args=work, daemon=True))
        workers[-1].start()
    return workers


def _served(opener: bytes, rank: int, ranks: int, where: str, threads: int) -> None:
    torch.set_num_threads(threads)
    serve(_unpacked(opener), rank=rank, ranks=ranks, meeting=where)


def _packed(thing: object) -> bytes:
    """For another process of ours, functions included; never for a file."""
    return bytes(_cloudpickle().dumps(thing))


def _unpacked(packed: bytes) -> Any:
    return _cloudpickle().loads(packed)


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise EnvironmentProblem(
            "Expected the package cloudpickle for several processes, got none.", fix="pip install 'sfumato[cluster]'"
        ) from error
    return cloudpickle
