"""How the ranks of a crew connect: a store for rendezvous, a shared secret for authentication, gloo for transport.

Guarantee: sockets listen only at the address of the meeting, which for a local crew is loopback; except for nonces and
gloo's addresses, nothing is sent to a rank, and nothing is accepted from it, before it has proved that it has the
secret.

On one machine the store is a file in a folder that only its owner can open. Across machines it is torch's TCPStore,
which accepts everyone who can reach it. So does gloo: a connection that sends the right number, which can be guessed,
takes the place of a rank. Neither is trusted: messages are sealed (channel.py), so that an attacker between two ranks
can read nothing and add nothing. An attacker can still stop a crew, fill its memory, and send input to the parsers of
TCPStore and gloo, which are not hardened: the network across machines must be private (WireGuard, for example).
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

PATIENCE = datetime.timedelta(minutes=30)  # how long to wait for a message before its sender counts as lost
POLL_SECONDS = 0.05  # between two checks whether all workers have arrived
DRIVER = 0
LOOPBACK = "127.0.0.1"
HEADER = struct.Struct("<BQ")  # kind and length of the body
DRIVER_NONCE = "driver"  # a key of the store


class Kind(IntEnum):
    """What a message is."""

    READY = 0  # from a worker: it has joined
    QUESTION = 1  # from the driver, the same for all workers
    SAMPLE = 2  # from the driver: which records of this shard are in the sample
    SUM = 3  # from a worker: the sum over its sampled records
    FAILED = 4  # from a worker: the sum could not be computed
    END = 5  # from the driver: no more questions


class Link:
    """Sealed messages to and from one other rank, by gloo."""

    def __init__(self, group: Any, peer: int, channel: Channel) -> None:
        self._group = group
        self._peer = peer
        self._channel = channel

    def send(self, kind: Kind, body: bytes | memoryview = b"") -> None:
        body = memoryview(body).cast("B")
        self._send_bytes(self._channel.seal(HEADER.pack(kind, len(body))))
        if len(body):
            self._send_bytes(self._channel.seal(body))

    def receive(self, *expected: Kind) -> tuple[Kind, bytes]:
        """The next message; its length is authenticated before memory is allocated for it."""
        header = self._channel.open(self._receive_bytes(HEADER.size + TAG))
        number, length = HEADER.unpack(header)
        if number not in expected:
            raise VerificationFailed(f"Expected a message of the kinds {[*map(int, expected)]}, got {number}.")
        if not length:
            return Kind(number), b""
        return Kind(number), self._channel.open(self._receive_bytes(length + TAG))

    def close(self) -> None:
        """Release the process group. When its last link is closed, gloo closes the connections to all other ranks."""
        self._group = None

    def _send_bytes(self, sealed: bytes) -> None:
        self._transfer("send", torch.frombuffer(bytearray(sealed), dtype=torch.uint8))

    def _receive_bytes(self, length: int) -> memoryview:
        received = torch.empty(length, dtype=torch.uint8)
        self._transfer("recv", received)
        return received.numpy().data

    def _transfer(self, operation: str, tensor: torch.Tensor) -> None:
        if self._group is None:
            raise EnvironmentProblem("Expected an open connection, got a closed one.", fix="run again: it resumes")
        with _lost_connection_of("The driver" if self._peer == DRIVER else "A worker"):
            getattr(self._group, operation)([tensor], self._peer, 0).wait()


@contextmanager
def _lost_connection_of(who: str) -> Iterator[None]:
    """Torch raises RuntimeError for a lost connection, a lost store and a timeout; within this, ours is raised."""
    try:
        yield
    except RuntimeError as error:
        raise EnvironmentProblem(f"{who} was lost ({error}).", fix="run again: it resumes") from error


def file_store(folder: str, ranks: int) -> Any:
    """The store for ranks on this machine that can open the folder."""
    store = FileStore(str(Path(folder) / "store"), ranks)
    store.set_timeout(PATIENCE)
    return store


def tcp_store(meeting: str, *, driver: bool) -> tuple[Any, str]:
    """The store for ranks on several machines, and the address of this machine on the route to the driver."""
    host, _, port = meeting.rpartition(":")
    if host in ("", "0.0.0.0") or not port.isdecimal():  # noqa: S104 - all addresses are refused here
        raise UsageError(
            f"Expected a meeting as address:port of the driver, got {meeting!r}.", fix='for example "10.0.0.1:29500"'
        )
    try:
        if not driver:
            store = TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=PATIENCE)
            return store, _address_towards(host, int(port))
        listener = socket.create_server((host, int(port)))  # torch would listen at all addresses
        address, bound_port = listener.getsockname()
        store = TCPStore(
            host,
            bound_port,
            is_master=True,
            wait_for_workers=False,
            timeout=PATIENCE,
            master_listen_fd=listener.detach(),
        )
        return store, address
    except (OSError, RuntimeError) as error:
        expected = "to listen at an address of this machine" if driver else "to reach the driver"
        raise EnvironmentProblem(
            f"Expected {expected}, got: {error}.", where=meeting, fix="see that host and port are right and free"
        ) from error


def gather(store: Any, address: str, secret: bytes, ranks: int, *, whole: Callable[[], bool]) -> list[Link]:
    """The driver's side: a link to every worker. A worker without the secret ends the meeting with an error.

    `whole` says whether all worker processes are still running.
    """
    nonce = fresh_nonce()
    channels = []
    store.set(DRIVER_NONCE, nonce)
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not store.check([_arrival(rank) for rank in range(1, ranks)]):
        if time.monotonic() > deadline or not whole():
            raise EnvironmentProblem("Not all workers came.", fix="see what they printed; then run again")
        time.sleep(POLL_SECONDS)
    try:
        for rank in range(1, ranks):
            greeting = store.get(_arrival(rank))
            channel = Channel(secret, nonce, greeting[:NONCE], rank=rank, ranks=ranks, driver=True)
            channel.open(greeting[NONCE:])
            channels.append(channel)
    except VerificationFailed:
        for rank in range(1, ranks):
            store.set(_welcome(rank), b"refused")  # so that no worker waits; it fails to verify there
        raise
    for rank, channel in enumerate(channels, 1):
        store.set(_welcome(rank), channel.seal(b""))
    with _lost_connection_of("A worker"):
        group = _joined(store, address, DRIVER, ranks)
    links = [Link(group, rank, channel) for rank, channel in enumerate(channels, 1)]
    for link in links:
        link.receive(Kind.READY)  # from here on the store is not needed
    return links


def attend(store: Any, address: str, secret: bytes, rank: int, ranks: int) -> Link:
    """A worker's side: a link to the driver, after both have proved that they have the secret."""
    if not 1 <= rank < ranks:
        raise UsageError(f"Expected a worker's rank from 1 to {ranks - 1}, got {rank}.")
    nonce = fresh_nonce()
    with _lost_connection_of("The driver"):
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
    """A process group that listens at `address`; by default gloo listens at the address of the host's name."""
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = PATIENCE
    return ProcessGroupGloo(store, rank, ranks, options)


def _address_towards(host: str, port: int) -> str:
    """This machine's address on the route to that host."""
    family, kind, *_, destination = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(destination)  # chooses a route; nothing is sent on a datagram socket
        return str(probe.getsockname()[0])
