"""Rounds of DP-SGD over shards in several processes, by torch.distributed's gloo: each keeps its own shard open.

The driver is rank 0 and has the first shard. A question goes to all, with the model's weights in it; every rank sums
the clipped gradients of its own sampled records; the driver adds the sums up, and noise to that, once.

Guarantee: the driver gets the sum of all ranks or an error, never a part of it; no rank but the driver draws noise;
nothing is unpickled or added that did not come sealed from a rank that has the secret.
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

GRACE = 10.0  # seconds for a worker of ours to end by itself


class GlooCrew:
    """A process for each shard but the first, which is the driver's.

    They are started on this machine, where they listen on loopback alone and share a secret that nobody else has; or,
    with a `meeting` (address-of-this-machine:port) and a `secret`, awaited from other machines that run `serve`.

    Messages are encrypted and authenticated, so that a stranger who connects, on the network or as another user of
    this machine, gets no question and no sample and adds nothing. It may still stop the crew, and see when and how
    much is sent; the meeting should be on a private network (WireGuard, for example). Every worker is trusted.
    """

    def __init__(self, openers: Sequence[Opener], *, meeting: str = "", secret: bytes | None = None) -> None:
        if secret is not None and not meeting:
            raise UsageError(
                "Expected a secret for a meeting with other machines only, got one without a meeting.",
                fix="leave it out: a crew on this machine draws its own",
            )
        known = checked_secret(secret) if meeting else fresh_secret()
        self.spec, self.counts = spec_of_shards(openers)
        self._workers, self._links = list[Any](), list[Link]()
        self._shard: _Shard | None = None
        if meeting:
            store, address = tcp_store(meeting, driver=True)
            self._links = gather(store, address, known, len(openers), whole=self._whole)
        else:
            self._meet_here(openers, known)
        try:
            self._shard = _Shard(openers[0])
        except BaseException:
            self._part(GRACE)
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
                total = total + _sum_of(*link.receive(Kind.SUM, Kind.FAILED), question.width)
            return total
        except BaseException:  # the others hear of it by their connection
            self._part(GRACE)
            raise

    def close(self) -> None:
        try:
            for link in self._links:
                link.send(Kind.END)
        except EnvironmentProblem:  # one of them is gone; the others notice when their connection closes
            pass
        self._part(GRACE)

    def _meet_here(self, openers: Sequence[Opener], secret: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="sfumato-crew-") as folder:  # nobody but this user can enter it
            try:
                self._workers = _started(openers, folder, secret)
                store = file_store(folder, len(openers))
                self._links = gather(store, LOOPBACK, secret, len(openers), whole=self._whole)
            except BaseException:
                self._part(0.0)  # before the folder goes, so that none of them writes into it
                raise

    def _whole(self) -> bool:
        """Whether no worker of ours died on the way."""
        return all(worker.is_alive() for worker in self._workers)

    def _part(self, grace: float) -> None:
        for link in self._links:
            link.close()
        if self._shard is not None:
            self._shard.close()
        deadline = time.monotonic() + grace
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            worker.terminate()  # does nothing to one that has ended
            worker.join()
        self._workers, self._links, self._shard = [], [], None


def serve(opener: Opener, *, rank: int, ranks: int, meeting: str, secret: bytes) -> None:
    """What a worker on another machine does: answer questions about its shard until the driver has no more.

    The questions are code: whoever has the secret, which must be the driver's, can run what it likes here.
    """
    known = checked_secret(secret)
    store, address = tcp_store(meeting, driver=False)
    _answer(opener, attend(store, address, known, rank, ranks))


def _answer(opener: Opener, link: Link) -> None:
    shard = _Shard(opener)
    try:
        while (message := link.receive(Kind.QUESTION, Kind.END))[0] is Kind.QUESTION:
            question: Question = _unpacked(message[1])
            included = np.frombuffer(link.receive(Kind.SAMPLE)[1], np.uint8).astype(bool)
            try:
                mine = shard.answer(question, included)
            except (SfumatoError, RuntimeError, ValueError, TypeError):
                link.send(Kind.FAILED)
                raise
            link.send(Kind.SUM, mine.astype("<i8").data)
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
    """A rank's own records, and the maps of them that were asked for."""

    def __init__(self, opener: Opener) -> None:
        self._images = Vault(opener(), folder=None, noise=Noise(), tape=Tape())
        self._views, self.count = {0: self._images}, self._images.spec.count

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
    context, threads = multiprocessing.get_context("spawn"), max(1, torch.get_num_threads() // len(openers))
    workers = []
    for rank, opener in enumerate(openers[1:], 1):
        work = (_packed(opener), rank, len(openers), folder, secret, threads)  # goes by a pipe, nobody else sees it
        workers.append(context.Process(target=_served, args=work, daemon=True))
        workers[-1].start()
    return workers


def _served(opener: bytes, rank: int, ranks: int, folder: str, secret: bytes, threads: int) -> None:
    torch.set_num_threads(threads)
    _answer(_unpacked(opener), attend(file_store(folder, ranks), LOOPBACK, secret, rank, ranks))


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
