"""How the ranks of a crew meet: out of reach on one machine, and by a secret across machines."""

from __future__ import annotations

import datetime
import functools
import itertools
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from sfumato.errors import EnvironmentProblem, UsageError, VerificationFailed
from sfumato.privacy import GlooCrew, gloo_crew, meeting
from sfumato.privacy.channel import NONCE, TAG, Channel, fresh_nonce
from sfumato.privacy.rows import Rows
from sfumato.privacy.shards import Question, streamed
from sfumato.values import Source
from sockets import beyond_loopback, listening, needs_proc

from toys import ToySource, halves

cloudpickle = pytest.importorskip("cloudpickle")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

SECRET = b"a secret of 16 bytes or more"
LIMIT = 120.0  # seconds, for whatever a test waits for


def pixels(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return image.flatten()


QUESTION = Question(Rows(pixels, 4.0), 64, 0, None, clip=True, microbatch=None)
PARTS = [np.ones(100, bool), np.ones(200, bool)]


def shard(source: ToySource, start: int, end: int) -> Source:
    return ToySource(source.pixels[start:end], source.labels[start:end], source.spec.classes)


def openers(*edges: int) -> list[Any]:
    return [functools.partial(shard, halves(), start, end) for start, end in itertools.pairwise(edges)]


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PATIENCE", datetime.timedelta(seconds=LIMIT))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """What lies where crews make their folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: list(tmp_path.glob("sfumato-crew-*"))


def listening_since(before: list[str]) -> list[str]:
    """Where this process listens, apart from what it listened to before."""
    return sorted((Counter(listening(os.getpid())) - Counter(before)).elements())


def test_a_crew_on_this_machine_listens_on_loopback_alone() -> None:
    needs_proc()
    before = listening(os.getpid())
    crew = GlooCrew(openers(0, 100, 200, 300))
    try:
        workers = [worker.pid for worker in crew._workers]
        assert listening_since(before) == ["127.0.0.1"]
        assert all(listening(pid) for pid in workers), "gloo does listen"
        assert [beyond_loopback(pid) for pid in workers] == [[], []]
    finally:
        crew.close()
    assert listening_since(before) == []


def test_the_folder_of_a_meeting_is_its_owners_and_gone_when_all_have_met(
    folders: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, store_in = [], meeting.file_store

    def seen(folder: str, ranks: int) -> Any:
        modes.append((folders() == [Path(folder)], Path(folder).stat().st_mode & 0o777))
        return store_in(folder, ranks)

    monkeypatch.setattr(gloo_crew, "file_store", seen)
    crew = GlooCrew(openers(0, 100, 300))
    assert modes == [(True, 0o700)]
    assert folders() == []
    assert np.array_equal(crew.add_up(QUESTION, PARTS), streamed(halves(), QUESTION, np.ones(300, bool)))
    crew.close()
    assert folders() == []


class DiesOnTheWay:
    """An opener that ends the process that it is sent to."""

    def __call__(self) -> Source:
        return halves()

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_the_folder_of_a_meeting_is_gone_after_a_failure(folders: Callable[[], list[Path]]) -> None:
    with pytest.raises(EnvironmentProblem, match="Not all workers came"):
        GlooCrew([halves, halves, DiesOnTheWay()])
    assert folders() == []


def test_a_worker_that_fails_is_heard_of_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo_crew, "GRACE", LIMIT)  # a busy machine is slow to end a process
    crew = GlooCrew(openers(0, 100, 200, 300))
    workers = list(crew._workers)
    failing = workers[1].pid

    def fails_in_one(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        if os.getpid() == failing:
            raise ValueError("no")
        return image.flatten()

    with pytest.raises(EnvironmentProblem, match="A worker failed at this question"):
        crew.add_up(
            Question(Rows(fails_in_one, 4.0), 64, 0, None, clip=True, microbatch=None), [np.ones(100, bool)] * 3
        )
    assert [worker.exitcode for worker in workers] == [1, 1]  # ended by themselves
    crew.close()


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[int]:
    """Where drivers listen that left the choice of the port to the kernel."""
    found, tcp_store = queue.Queue[int](), meeting.TCPStore

    def recorded(*args: Any, **settings: Any) -> Any:
        store = tcp_store(*args, **settings)
        if settings["is_master"]:
            found.put(store.port)
        return store

    monkeypatch.setattr(meeting, "TCPStore", recorded)
    return found


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


def meets(*edges: int) -> GlooCrew:
    return GlooCrew(openers(*edges), meeting=at(0), secret=SECRET)


def in_background(work: Callable[[], object]) -> queue.Queue[Any]:
    """Gets what the work returns or raises."""
    result = queue.Queue[Any]()

    def run() -> None:
        try:
            result.put(work())
        except Exception as error:
            result.put(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def one_round() -> Any:
    crew = meets(0, 100, 300)
    try:
        return crew.add_up(QUESTION, PARTS)
    finally:
        crew.close()


def test_a_worker_with_the_secret_joins_and_all_listen_at_the_address_of_the_meeting(ports: queue.Queue[int]) -> None:
    needs_proc()
    before, where = listening(os.getpid()), list[list[str]]()
    driver = in_background(one_round)

    def looks() -> Source:
        where.append(listening_since(before))
        return shard(halves(), 100, 300)

    gloo_crew.serve(looks, rank=1, ranks=2, meeting=at(ports.get(timeout=LIMIT)), secret=SECRET)
    assert np.array_equal(driver.get(timeout=LIMIT), streamed(halves(), QUESTION, np.ones(300, bool)))
    assert where == [["127.0.0.1"] * 3]  # the store, and gloo twice


# what a worker did before there was a secret; whatever it gets, it writes down
ATTACKER = """
import datetime, sys, torch
from torch import distributed
port, greeting, path = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3]
patience = datetime.timedelta(seconds=5)
got = open(path, "wb", buffering=0)
store = distributed.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=patience)
store.set("rank 1", greeting)
got.write(b"came;")
distributed.init_process_group("gloo", store=store, rank=1, world_size=2, timeout=patience)
got.write(b"joined;")
length = torch.tensor(0)
distributed.broadcast(length, 0)
message = torch.zeros(int(length), dtype=torch.uint8)
distributed.broadcast(message, 0)
got.write(b"question;")
sample = torch.zeros(200, dtype=torch.uint8)
distributed.recv(sample, 0)
got.write(b"sample;")
"""


@pytest.mark.parametrize("greeting", [b"here", bytes(NONCE + TAG)], ids=["plain", "invented"])
def test_an_attacker_who_knows_the_address_cannot_join(
    greeting: bytes, tmp_path: Path, ports: queue.Queue[int]
) -> None:
    driver, got = in_background(one_round), tmp_path / "got"
    command = [sys.executable, "-c", ATTACKER, str(ports.get(timeout=LIMIT)), greeting.hex(), str(got)]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=False)
    assert isinstance(driver.get(timeout=LIMIT), VerificationFailed)
    assert done.returncode != 0
    assert got.read_bytes() in (b"", b"came;"), "no question, no sample"


def test_a_worker_with_another_secret_cannot_join(ports: queue.Queue[int]) -> None:
    driver = in_background(one_round)
    with pytest.raises((VerificationFailed, EnvironmentProblem)):  # it is refused, or the meeting is over
        gloo_crew.serve(halves, rank=1, ranks=2, meeting=at(ports.get(timeout=LIMIT)), secret=SECRET[::-1])
    assert isinstance(driver.get(timeout=LIMIT), VerificationFailed)


class Between:
    """Someone between gloo and the driver, who changes what arrives."""

    def __init__(self, group: Any, trick: Callable[[Between, list[torch.Tensor], int], None]) -> None:
        self.group, self.trick, self.seen = group, trick, list[torch.Tensor]()

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        return self.group.send(tensors, peer, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Between:
        self.trick(self, tensors, peer)
        return self

    def arrive(self, tensors: list[torch.Tensor], peer: int) -> None:
        self.group.recv(tensors, peer, 0).wait()
        self.seen.append(tensors[0].clone())

    def wait(self) -> None:
        pass


def unchanged(between: Between, tensors: list[torch.Tensor], peer: int) -> None:
    between.arrive(tensors, peer)


def adds_one(between: Between, tensors: list[torch.Tensor], peer: int) -> None:
    between.arrive(tensors, peer)
    if tensors[0].numel() > meeting.HEADER.size + TAG:
        tensors[0][0] += 1


def repeats(between: Between, tensors: list[torch.Tensor], peer: int) -> None:
    between.arrive(tensors, peer)
    if len(between.seen) > 4:  # of two ranks in the round before: a header and a sum each
        tensors[0].copy_(between.seen[len(between.seen) - 5])


def swaps(between: Between, tensors: list[torch.Tensor], peer: int) -> None:
    between.arrive(tensors, 3 - peer)


@pytest.mark.parametrize("trick", [adds_one, repeats, swaps])
def test_a_sum_that_was_changed_repeated_or_swapped_is_not_added(trick: Any, ports: queue.Queue[int]) -> None:
    def work(rank: int) -> None:
        where = at(port.get(timeout=LIMIT))
        gloo_crew.serve(openers(0, 100, 200, 300)[rank], rank=rank, ranks=3, meeting=where, secret=SECRET)

    port = queue.Queue[int]()
    workers = [in_background(functools.partial(work, rank)) for rank in (1, 2)]
    both = in_background(lambda: [port.put(number) for number in [ports.get(timeout=LIMIT)] * 2])
    crew, parts = meets(0, 100, 200, 300), [np.ones(100, bool)] * 3
    both.get(timeout=LIMIT)
    between = Between(crew._links[0]._group, unchanged)
    for link in crew._links:
        link._group = between
    assert np.array_equal(crew.add_up(QUESTION, parts), streamed(halves(), QUESTION, np.ones(300, bool)))
    between.trick = trick
    with pytest.raises(VerificationFailed, match="does not verify"):
        crew.add_up(QUESTION, parts)
    between.group = None
    with pytest.raises(EnvironmentProblem, match="Expected a whole crew"):  # it does not go on as if nothing had been
        crew.add_up(QUESTION, parts)
    assert all(isinstance(worker.get(timeout=LIMIT), EnvironmentProblem) for worker in workers)  # they heard of it


def gathered(store: Any) -> list[meeting.Link]:
    return meeting.gather(store, meeting.LOOPBACK, SECRET, 2, whole=lambda: True)


def test_a_greeting_from_an_earlier_meeting_is_refused() -> None:
    earlier, nonce = fresh_nonce(), fresh_nonce()
    store = HashStore()
    worker = Channel(SECRET, earlier, nonce, rank=1, ranks=2, driver=False)
    store.set("rank 1", nonce + worker.seal(b""))  # type: ignore[arg-type]
    with pytest.raises(VerificationFailed, match="sealed by rank 1"):
        gathered(store)


def test_a_worker_joins_no_driver_without_the_secret() -> None:
    store = HashStore()
    store.set("driver", fresh_nonce())  # type: ignore[arg-type]
    store.set("welcome 1", secrets.token_bytes(TAG))  # type: ignore[arg-type]
    with pytest.raises(VerificationFailed, match="sealed by the driver"):
        meeting.attend(store, meeting.LOOPBACK, SECRET, 1, 2)


def test_one_who_takes_the_place_of_a_worker_that_was_let_in_is_noticed_before_a_question() -> None:
    """Gloo gives a rank's place to whoever connects first: here to someone who let the worker greet."""
    store = HashStore()
    driver = in_background(lambda: gathered(store))
    nonce = fresh_nonce()
    worker = Channel(SECRET, store.get("driver"), nonce, rank=1, ranks=2, driver=False)
    store.set("rank 1", nonce + worker.seal(b""))  # type: ignore[arg-type]
    place = meeting._joined(store, meeting.LOOPBACK, 1, 2)
    place.send([torch.zeros(meeting.HEADER.size + TAG, dtype=torch.uint8)], 0, 0).wait()
    assert isinstance(driver.get(timeout=LIMIT), VerificationFailed)


@pytest.mark.parametrize("where", ["", "host", "0.0.0.0:29500", ":29500", "host:port"])
def test_a_meeting_is_an_address_and_a_port(where: str) -> None:
    with pytest.raises(UsageError, match="Expected a meeting as address:port"):
        gloo_crew.serve(halves, rank=1, ranks=2, meeting=where, secret=SECRET)


def test_a_meeting_at_an_address_of_another_machine_is_a_sentence() -> None:
    with pytest.raises(EnvironmentProblem, match="to listen at an address of this machine"):
        GlooCrew([halves, halves], meeting="198.51.100.1:29500", secret=SECRET)  # an address for documentation


@pytest.mark.parametrize("rank", [-1, 0, 2])
def test_a_worker_has_a_rank_of_its_own(rank: int) -> None:
    with pytest.raises(UsageError, match="rank from 1 to 1"):
        meeting.attend(HashStore(), meeting.LOOPBACK, SECRET, rank, 2)
