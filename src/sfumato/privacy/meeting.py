"""How the ranks of a crew meet and talk: a store to find each other, a secret to know each other, gloo to send.

Guarantee: sockets listen at the address of the meeting alone, which for a local crew is loopback; but for nonces and
gloo's addresses nothing is sent to a rank that has not shown the secret, and nothing of it is taken.

On one machine the store is a file in a folder that only its owner can enter. Across machines it is torch's TCPStore,
which lets everyone in who can reach it, and so does gloo: a connection that names the right number, which can be
guessed, takes a rank's place. Neither is trusted: messages are sealed (channel.py), so that whoever gets in between
reads and adds nothing. It can stop a crew, fill its memory, and speak to the parsers of both, which are not hardened:
the network across machines must be private (WireGuard, for example).
"""

from __future__ import annotations

import datetime
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch.distributed import FileStore, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from sfumato.errors import EnvironmentProblem, UsageError, VerificationFailed
from sfumato.privacy.channel import NONCE, TAG, Channel, fresh_nonce

PATIENCE = datetime.timedelta(minutes=30)  # with a silent rank, before it counts as lost
GLANCE = 0.05  # seconds between two looks at who has come
DRIVER = 0
LOOPBACK = "127.0.0.1"
HEADER = struct.Struct("<BQ")  # kind and length of the body
DRIVER_NONCE = "driver"  # a key of the store


class Kind(IntEnum):
    """What a message is."""

    READY = 0  # worker: joined
    QUESTION = 1  # driver: for all
    SAMPLE = 2  # driver: which records of this shard
    SUM = 3  # worker: its answer
    FAILED = 4  # worker: no answer
    END = 5  # driver: no more questions


class Link:
    """Sealed messages to and from one other rank, by gloo."""

    def __init__(self, group: Any, peer: int, channel: Channel) -> None:
        self._group, self._peer, self._channel = group, peer, channel

    def send(self, kind: Kind, body: bytes | memoryview = b"") -> None:
        body = memoryview(body).cast("B")
        self._put(self._channel.seal(HEADER.pack(kind, len(body))))
        if len(body):
            self._put(self._channel.seal(body))

    def receive(self, *expected: Kind) -> tuple[Kind, bytes]:
        """The next message; its length is verified before memory is set aside for it."""
        number, length = HEADER.unpack(self._channel.open(self._taken(HEADER.size + TAG)))
        if number not in expected:
            raise VerificationFailed(f"Expected a message of the kinds {[*map(int, expected)]}, got {number}.")
        return Kind(number), self._channel.open(self._taken(length + TAG)) if length else b""

    def close(self) -> None:
        """Let gloo go: it closes its connections with the last link, by which the other ranks hear of it."""
        self._group = None

    def _put(self, sealed: bytes) -> None:
        self._done("send", torch.frombuffer(bytearray(sealed), dtype=torch.uint8))

    def _taken(self, length: int) -> memoryview:
        taken = torch.empty(length, dtype=torch.uint8)
        self._done("recv", taken)
        return taken.numpy().data

    def _done(self, what: str, tensor: torch.Tensor) -> None:
        if self._group is None:
            raise EnvironmentProblem("Expected an open connection, got a closed one.", fix="run again: it resumes")
        with _noticed("The driver" if self._peer == DRIVER else "A worker"):
            getattr(self._group, what)([tensor], self._peer, 0).wait()


@contextmanager
def _noticed(who: str) -> Iterator[None]:
    """Torch tells of a lost connection, of a lost store and of a timeout as a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise EnvironmentProblem(f"{who} was lost ({error}).", fix="run again: it resumes") from error


def file_store(folder: str, ranks: int) -> Any:
    """For ranks on this machine that can enter the folder."""
    store = FileStore(str(Path(folder) / "store"), ranks)
    store.set_timeout(PATIENCE)
    return store


def tcp_store(meeting: str, *, driver: bool) -> tuple[Any, str]:
    """For ranks on several machines; with the address of this one that leads there."""
    host, _, port = meeting.rpartition(":")
    if host in ("", "0.0.0.0") or not port.isdecimal():  # noqa: S104 - all addresses are refused here
        raise UsageError(
            f"Expected a meeting as address:port of the driver, got {meeting!r}.", fix='for example "10.0.0.1:29500"'
        )
    try:
        if not driver:
            store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=PATIENCE)
            return store, _address_towards(host, int(port))
        listener = socket.create_server((host, int(port)))  # torch by itself would listen at all addresses
        address, taken = listener.getsockname()
        return TCPStore(
            host, taken, is_master=True, wait_for_workers=False, timeout=PATIENCE, master_listen_fd=listener.detach()
        ), address
    except (OSError, RuntimeError) as error:
        expected = "to listen at an address of this machine" if driver else "to reach the driver"
        raise EnvironmentProblem(
            f"Expected {expected}, got: {error}.", where=meeting, fix="see that host and port are right and free"
        ) from error


def gather(store: Any, address: str, secret: bytes, ranks: int, *, whole: Callable[[], bool]) -> list[Link]:
    """The driver's part: a link to every worker. One that came without the secret ends the meeting."""
    nonce, channels = fresh_nonce(), []
    store.set(DRIVER_NONCE, nonce)
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not store.check([_arrival(rank) for rank in range(1, ranks)]):
        if time.monotonic() > deadline or not whole():
            raise EnvironmentProblem("Not all workers came.", fix="see what they printed; then run again")
        time.sleep(GLANCE)
    try:
        for rank in range(1, ranks):
            greeting = store.get(_arrival(rank))
            channels.append(Channel(secret, nonce, greeting[:NONCE], rank=rank, ranks=ranks, driver=True))
            channels[-1].open(greeting[NONCE:])
    except VerificationFailed:
        for rank in range(1, ranks):
            store.set(_welcome(rank), b"refused")  # so that nobody waits; it does not verify
        raise
    for rank, channel in enumerate(channels, 1):
        store.set(_welcome(rank), channel.seal(b""))
    with _noticed("A worker"):
        group = _joined(store, address, DRIVER, ranks)
    links = [Link(group, rank, channel) for rank, channel in enumerate(channels, 1)]
    for link in links:
        link.receive(Kind.READY)  # from here on nobody needs the store
    return links


def attend(store: Any, address: str, secret: bytes, rank: int, ranks: int) -> Link:
    """A worker's part: a link to the driver, once that has shown the secret too."""
    if not 1 <= rank < ranks:
        raise UsageError(f"Expected a worker's rank from 1 to {ranks - 1}, got {rank}.")
    nonce = fresh_nonce()
    with _noticed("The driver"):
        channel = Channel(secret, store.get(DRIVER_NONCE), nonce, rank=rank, ranks=ranks, driver=False)
        store.set(_arrival(rank), nonce + channel.seal(b""))
        channel.open(store.get(_welcome(rank)))
        link = Link(_joined(store, address, rank, ranks), DRIVER, channel)
    link.send(Kind.READY)
    return link


def _arrival(rank: int) -> str:
    return f"rank {rank}"


def _welcome(rank: int) -> str:
    return f"welcome {rank}"


def _joined(store: Any, address: str, rank: int, ranks: int) -> Any:
    """A process group of our own: by default gloo would listen at whatever address the host's name has."""
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices, options._timeout = [ProcessGroupGloo.create_device(hostname=address)], PATIENCE
    return ProcessGroupGloo(store, rank, ranks, options)


def _address_towards(host: str, port: int) -> str:
    family, kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # asks for the route; nothing is sent
        return str(probe.getsockname()[0])
