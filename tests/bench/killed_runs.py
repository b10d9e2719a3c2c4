"""Driver of the kill tests: imports once, forks a run, kills it, resumes it, and prints what it saw as JSON.

Usage: killed_runs.py FOLDER random COUNT | killed_runs.py FOLDER fsync
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sfumato.bench.run import Job, make_release
from sfumato.contracts import Reading
from sfumato.errors import SfumatoError
from sfumato.privacy import GaussianSum, Noise, accounting, epsilon_pld
from sfumato.release import verify

torch.set_num_threads(1)
EPSILON = 1.0


def job(folder: Path) -> Job:
    path = folder / "data.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        np.savez(path, x=rng.integers(0, 256, (90, 8, 8), dtype=np.uint8), y=np.arange(90) % 3)
    settings = (("steps", "3"), ("frequencies", "50"))
    return Job(str(path), "dp-merf", EPSILON, count=12, reading=Reading(classes=("a", "b", "c")), settings=settings)


def witness_noise(path: Path) -> None:
    """Write down a hash of every draw of noise the moment it exists; a killed process cannot take that back."""
    original = Noise.lattice_gaussian
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def witnessed(self: Noise, count: int, scale: float) -> np.ndarray:
        drawn = original(self, count, scale)
        os.write(file, hashlib.sha256(drawn.tobytes()).hexdigest().encode() + b"\n")
        return drawn

    Noise.lattice_gaussian = witnessed


def forked(run: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run()
        code = 0
    except SfumatoError as error:
        print(error.message(), file=sys.stderr)
        code = error.exit_code
    finally:
        os._exit(code)


def attempt(folder: Path, killer: Callable[[int], None], before: Callable[[], None] = lambda: None) -> int:
    """One run in a child; `killer` gets its pid. Returns the exit status, negative for a signal."""

    def run() -> None:
        witness_noise(folder / "witness")
        before()
        make_release(job(folder), folder / "r")

    child = forked(run)
    killer(child)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def outcome(folder: Path) -> dict[str, object]:
    """What stands on disk after the last run, against what was really drawn."""
    lines = (folder / "witness").read_text().split() if (folder / "witness").exists() else []
    certificate = json.loads((folder / "r" / "certificate.json").read_text())
    noise = certificate["mechanisms"][0]["noise_multiplier"]
    each = GaussianSum(noise_multiplier=noise * 8**0.5, rounds=max(1, len(lines)))
    spent = epsilon_pld([each], certificate["guarantee"]["delta"]) if lines else 0.0
    leftovers = [p.name for p in folder.iterdir() if p.name not in ("r", "r.lab", "witness", "data.npz")]
    return {
        "ok": verify(folder / "r").ok,
        "certified": certificate["guarantee"]["epsilon"],
        "spent": spent,
        "draws": len(lines),
        "repeated": len(lines) - len(set(lines)),
        "leftovers": leftovers,
    }


def remember_compositions() -> None:
    """Compose each loss distribution once, in the parent: a hundred children need the same few."""
    original, known = accounting._compose, {}

    def compose(mechanisms: list, grid: float) -> object:
        key = (tuple(mechanisms), grid)
        if key not in known:
            known[key] = original(mechanisms, grid)
        return known[key]

    accounting._compose = compose


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def random_kills(root: Path, count: int) -> list[dict[str, object]]:
    started = time.monotonic()
    assert attempt(fresh(root / "whole"), lambda pid: None) == 0
    length, found = time.monotonic() - started, []
    for number in range(count):
        folder = fresh(root / f"{number}")
        moment = random.uniform(0, length)

        def kill(pid: int, moment: float = moment) -> None:
            time.sleep(moment)
            os.kill(pid, signal.SIGKILL)

        first = attempt(folder, kill)
        second = 0 if (folder / "r").exists() else attempt(folder, lambda pid: None)
        found.append({"moment": moment, "first": first, "second": second, **outcome(folder)})
    return found


def fsync_kills(root: Path) -> list[dict[str, object]]:
    """Die at every single durable write, once just before it and once just after it."""
    found, number = [], 0
    while True:
        number += 1
        for after in (False, True):
            folder = fresh(root / f"{number}-{after}")
            first = attempt(folder, lambda pid: None, before=lambda n=number, late=after: die_at(n, late=late))
            if first == 0:
                return found
            second = 0 if (folder / "r").exists() else attempt(folder, lambda pid: None)
            found.append({"fsync": number, "after": after, "first": first, "second": second, **outcome(folder)})


def die_at(number: int, *, late: bool) -> None:
    original, calls = os.fsync, [0]

    def fsync(handle: int) -> None:
        calls[0] += 1
        if calls[0] == number and not late:
            os.kill(os.getpid(), signal.SIGKILL)
        original(handle)
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync


if __name__ == "__main__":
    where = Path(sys.argv[1])
    remember_compositions()
    make_release(job(fresh(where / "warm")), where / "warm" / "r")
    results = random_kills(where, int(sys.argv[3])) if sys.argv[2] == "random" else fsync_kills(where)
    print(json.dumps(results))
