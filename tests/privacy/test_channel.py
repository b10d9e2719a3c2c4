"""Messages between the ranks of a crew: nothing is unpickled or added that an attacker changed, repeated or made.

The sealing itself is held to its guarantee in tests/guarantees.py; here it is in its place, between crew and gloo.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato.errors import EnvironmentProblem, UsageError, VerificationFailed
from sfumato.privacy import GlooCrew, gloo_crew
from sfumato.privacy.channel import TAG, Channel, checked_secret, fresh_nonce
from sfumato.privacy.meeting import HEADER, Kind, Link

from toys import halves

cloudpickle = pytest.importorskip("cloudpickle")

SECRET = b"a secret of 16 bytes or more"


class Wire:
    """Stands for gloo: what is sent waits here until it is received."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Wire:
        self.waiting.append(tensors[0].numpy().tobytes())
        return self

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Wire:
        if not self.waiting:
            raise RuntimeError("Connection closed by peer")
        tensors[0].copy_(torch.frombuffer(bytearray(self.waiting.pop(0)), dtype=torch.uint8))
        return self

    def wait(self) -> None:
        pass


def ends(secret: bytes = SECRET, rank: int = 1, nonces: tuple[bytes, bytes] | None = None) -> tuple[Channel, Channel]:
    known = nonces or (fresh_nonce(), fresh_nonce())
    return tuple(Channel(secret, *known, rank=rank, ranks=3, driver=driver) for driver in (True, False))  # type: ignore[return-value]


class Poison:
    """A pickle that leaves a mark where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def poisoned(link: Link, mark: Path) -> None:
    link.send(Kind.QUESTION, cloudpickle.dumps(Poison(mark)))


def unsealed(wire: Wire, mark: Path) -> None:
    body = cloudpickle.dumps(Poison(mark))
    wire.waiting += [HEADER.pack(Kind.QUESTION, len(body)) + bytes(TAG), body + bytes(TAG)]


def changed(wire: Wire) -> None:
    wire.waiting[1] = wire.waiting[1][:-1] + bytes([wire.waiting[1][-1] ^ 1])


def replayed(wire: Wire, worker: Link) -> None:
    again = list(wire.waiting)
    worker.receive(Kind.QUESTION)  # read, and not unpickled
    wire.waiting = again


@pytest.mark.parametrize(
    "trick", ["none", "unsealed", "changed", "replayed", "other secret", "other rank", "other time"]
)
def test_a_question_that_is_not_the_drivers_next_is_never_unpickled(trick: str, tmp_path: Path) -> None:
    mark, wire, nonces = tmp_path / "mark", Wire(), (fresh_nonce(), fresh_nonce())
    driver_end, worker_end = ends(nonces=nonces)
    worker = Link(wire, 0, worker_end)
    if trick == "other secret":
        driver_end, _ = ends(b"another secret of the same size", nonces=nonces)
    elif trick == "other rank":
        driver_end, _ = ends(rank=2, nonces=nonces)
    elif trick == "other time":
        driver_end, _ = ends()
    if trick == "unsealed":
        unsealed(wire, mark)
    else:
        poisoned(Link(wire, 1, driver_end), mark)
    if trick == "changed":
        changed(wire)
    elif trick == "replayed":
        replayed(wire, worker)
    refused = EnvironmentProblem if trick == "none" else VerificationFailed  # unpickled; then the wire is empty
    with pytest.raises(refused):
        gloo_crew._answer_questions(halves, worker)
    assert mark.exists() == (trick == "none"), "the poison works, and was not loaded"


def test_a_length_is_verified_before_memory_is_set_aside() -> None:
    wire, (_, worker_end) = Wire(), ends()
    wire.waiting.append(HEADER.pack(Kind.QUESTION, 2**60) + bytes(TAG))
    with pytest.raises(VerificationFailed, match="does not verify"):
        Link(wire, 0, worker_end).receive(Kind.QUESTION)


def test_a_message_of_another_kind_is_refused() -> None:
    wire, (driver_end, worker_end) = Wire(), ends()
    Link(wire, 1, driver_end).send(Kind.SAMPLE, b"1")
    with pytest.raises(VerificationFailed, match=r"kinds \[1, 5\], got 2"):
        Link(wire, 0, worker_end).receive(Kind.QUESTION, Kind.END)


@pytest.mark.parametrize("secret", [None, b"", b"15 bytes, short", "a text of more than 16 letters"])
def test_a_meeting_without_a_secret_is_refused(secret: Any) -> None:
    with pytest.raises(UsageError, match="Expected a secret of at least 16 bytes for a meeting"):
        GlooCrew([halves, halves], meeting="127.0.0.1:0", secret=secret)
    with pytest.raises(UsageError, match=r"secrets\.token_bytes"):
        gloo_crew.serve(halves, rank=1, ranks=2, meeting="127.0.0.1:1", secret=secret)
    assert checked_secret(bytes(16)) == bytes(16)


def test_a_secret_without_a_meeting_is_refused() -> None:
    with pytest.raises(UsageError, match="leave it out"):
        GlooCrew([halves, halves], secret=SECRET)
