"""Sums over shards in several processes, connected by torch.distributed's gloo; each process keeps its shard open.

The driver is rank 0 and holds the first shard. In a round of DP-SGD it sends the question, which contains the model's
weights, to all other ranks; every rank sums the clipped gradients of its own sampled records; the driver adds up the
sums of all ranks and adds noise to the total, once.

Guarantee: the driver gets the sum of all ranks or an error, never a partial sum; no rank but the driver draws noise;
nothing is unpickled or added unless a rank that has the secret sealed it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import multiprocessing

from sfumato.errors import DataError, EnvironmentProblem, SfumatoError, UsageError
from sfumato.privacy.channel import checked_secret, fresh_secret
from sfumato.privacy.meeting import LOOPBACK, Kind, Link, attend, file_store, gather, tcp_store
from sfumato.privacy.noise import Noise
from sfumato.privacy.shards import Opener, Question, spec_of_shards
from sfumato.privacy.tape import Tape
from sfumato.privacy.vault import Vault

GRACE = 10.0  # seconds that a worker process has to end by itself before it is terminated


class GlooCrew:
    """One worker process for each shard except the first, which the driver holds itself.

    By default the workers are started on this machine, listen on loopback only and share a fresh secret with the
    driver. With a `meeting` (address-of-this-machine:port) and a `secret`, the driver waits for workers on other
    machines, which run `serve`.

    Messages are encrypted and authenticated, so that an outsider who connects, over the network or as another user of
    this machine, can read no question and no sample and cannot add to a sum. An outsider can still stop the crew and
    see when messages are sent and how long they are, so the meeting should be on a private network (WireGuard, for
    example). Every worker is trusted.
    """

    def __init__(self, openers: Sequence[Opener], *, meeting: str = "", secret: bytes | None = None) -> None:
        if secret is not None and not meeting:
            raise UsageError(
                "Expected a secret for a meeting with other machines only, got one without a meeting.",
                fix="leave it out: a crew on this machine draws its own",
            )
        shared_secret = checked_secret(secret) if meeting else fresh_secret()
        self.spec, self.counts = spec_of_shards(openers)
        self._workers: list[Any] = []
        self._links: list[Link] = []
        self._shard: _Shard | None = None
        if meeting:
            store, address = tcp_store(meeting, driver=True)
            self._links = gather(store, address, shared_secret, len(openers), whole=self._all_alive)
        else:
            self._start_local_workers(openers, shared_secret)
        try:
            self._shard = _Shard(openers[0])
        except BaseException:
            self._disband(GRACE)
            raise

    def add_up(self, question: Question, included: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
        if self._shard is None:
            raise EnvironmentProblem("Expected a whole crew, got one that is closed or lost a worker.", fix="run again")
        packed = _packed(question)
        try:
            for link, part in zip(self._links, included[1:], strict=True):
                link.send(Kind.QUESTION, packed)
                link.send(Kind.SAMPLE, part.astype(np.uint8).tobytes())
            total = self._shard.answer(question, included[0])
            for link in self._links:
                kind, body = link.receive(Kind.SUM, Kind.FAILED)
                total = total + _sum_of(kind, body, question.width)
            return total
        except BaseException:  # the workers end when their connections close
            self._disband(GRACE)
            raise

    def close(self) -> None:
        try:
            for link in self._links:
                link.send(Kind.END)
        except EnvironmentProblem:  # a worker has ended already; the others end when their connections close
            pass
        self._disband(GRACE)

    def _start_local_workers(self, openers: Sequence[Opener], secret: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="sfumato-crew-") as folder:  # only this user can open it
            try:
                self._workers = _started(openers, folder, secret)
                store = file_store(folder, len(openers))
                self._links = gather(store, LOOPBACK, secret, len(openers), whole=self._all_alive)
            except BaseException:
                self._disband(0.0)  # before the folder is deleted, so that no worker writes into it
                raise

    def _all_alive(self) -> bool:
        """Whether every worker process that this crew started is still running."""
        return all(worker.is_alive() for worker in self._workers)

    def _disband(self, grace: float) -> None:
        """Close all connections and this process's shard; terminate workers that do not end within `grace` seconds."""
        for link in self._links:
            link.close()
        if self._shard is not None:
            self._shard.close()
        deadline = time.monotonic() + grace
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            worker.terminate()  # no effect on a process that has ended
            worker.join()
        self._workers = []
        self._links = []
        self._shard = None


def serve(opener: Opener, *, rank: int, ranks: int, meeting: str, secret: bytes) -> None:
    """Run a worker on another machine: answer questions about its shard until the driver has no more.

    Questions contain code that is run here: whoever has the secret can run any code on this machine.
    """
    shared_secret = checked_secret(secret)
    store, address = tcp_store(meeting, driver=False)
    _answer_questions(opener, attend(store, address, shared_secret, rank, ranks))


def _answer_questions(opener: Opener, link: Link) -> None:
    shard = _Shard(opener)
    try:
        while True:
            kind, packed_question = link.receive(Kind.QUESTION, Kind.END)
            if kind is Kind.END:
                break
            question: Question = _unpacked(packed_question)
            _, sample = link.receive(Kind.SAMPLE)
            included = np.frombuffer(sample, np.uint8).astype(bool)
            try:
                shard_sum = shard.answer(question, included)
            except (SfumatoError, RuntimeError, ValueError, TypeError):
                link.send(Kind.FAILED)
                raise
            link.send(Kind.SUM, shard_sum.astype("<i8").data)
    finally:
        shard.close()
        link.close()


def _sum_of(kind: Kind, body: bytes, width: int) -> NDArray[np.int64]:
    if kind is Kind.FAILED:
        raise EnvironmentProblem("A worker failed at this question.", fix="see what it printed; then run again")
    if len(body) != 8 * width:
        raise EnvironmentProblem(
            f"Expected a sum of {width} numbers from a worker, got {len(body)} bytes.",
            fix="install the same version everywhere",
        )
    return np.frombuffer(body, "<i8").astype(np.int64, copy=False)


class _Shard:
    """A rank's own records, and the features of them that questions have asked for so far."""

    def __init__(self, opener: Opener) -> None:
        self._images = Vault(opener(), folder=None, noise=Noise(), tape=Tape())
        self._views = {0: self._images}
        self.count = self._images.spec.count

    def answer(self, question: Question, included: NDArray[np.bool_]) -> NDArray[np.int64]:
        if len(included) != self.count:
            raise DataError(
                f"Expected a sample of {self.count} records, got one of {len(included)}.",
                fix="see that the shard has not changed; then run again",
            )
        if question.feature is not None and question.view not in self._views:
            self._views[question.view] = self._images.derive(question.feature)
        return question.of(self._views[question.view], included)

    def close(self) -> None:
        self._images.close()


def _started(openers: Sequence[Opener], folder: str, secret: bytes) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // len(openers))
    workers = []
    for rank, opener in enumerate(openers[1:], 1):
        # the arguments, the secret among them, are passed through a pipe that no other process can read
        arguments = (_packed(opener), rank, len(openers), folder, secret, threads)
        worker = context.Process(target=_run_local_worker, args=arguments, daemon=True)
        worker.start()
        workers.append(worker)
    return workers


def _run_local_worker(opener: bytes, rank: int, ranks: int, folder: str, secret: bytes, threads: int) -> None:
    torch.set_num_threads(threads)
    open_shard = _unpacked(opener)
    link = attend(file_store(folder, ranks), LOOPBACK, secret, rank, ranks)
    _answer_questions(open_shard, link)


def _packed(thing: object) -> bytes:
    """Pickled for another process of this crew, functions included; never written to a file."""
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
