"""Driver of the kill tests: imports once, forks a run, kills it, resumes it, and prints what it saw as JSON.

Usage: killed_runs.py FOLDER METHOD random COUNT | killed_runs.py FOLDER METHOD fsync STRIDE
METHOD is dp-merf, which asks once of all records, dp-imgsyn, whose teacher asks 24 rounds of samples, or the learner
dp-sgd, which asks 40 rounds and keeps a checkpoint in place of the answers of every sixteen.
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
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sfumato.contracts import Reading
from sfumato.errors import SfumatoError
from sfumato.making.model import TrainingJob, train_model
from sfumato.making.release import Job, make_release
from sfumato.privacy import LATTICE_BITS, Noise, accounting, epsilon_pld, mechanism_from_dict
from sfumato.release import verify

torch.set_num_threads(1)
EPSILON = 1.0


SETTINGS = {
    "dp-merf": (("steps", "3"), ("frequencies", "50")),
    "dp-imgsyn": (("rounds", "24"), ("steps", "2"), ("sampling", "0.25"), ("width", "4")),
    "dp-sgd": (("arch", "cnn"), ("techniques", "none"), ("batch", "18"), ("epochs", "8")),
}
METHOD = "dp-merf"


def job(folder: Path) -> Job | TrainingJob:
    rng = np.random.default_rng(0)
    for name, count in (("data", 90), ("public", 24)):
        if not (folder / f"{name}.npz").exists():
            pixels = rng.integers(0, 256, (count, 8, 8), dtype=np.uint8)
            np.savez(folder / f"{name}.npz", x=pixels, y=np.arange(count) % 3)
    data, reading, settings = str(folder / "data.npz"), Reading(classes=("a", "b", "c")), SETTINGS[METHOD]
    if METHOD == "dp-sgd":
        return TrainingJob(data, METHOD, EPSILON, reading=reading, settings=settings)
    public = str(folder / "public.npz") if METHOD == "dp-imgsyn" else None
    return Job(data, METHOD, EPSILON, public=public, count=12, reading=reading, settings=settings)


def make(asked: Job | TrainingJob, out: Path) -> Path:
    return train_model(asked, out) if isinstance(asked, TrainingJob) else make_release(asked, out)


def record_noise(path: Path) -> None:
    """Write down scale and hash of every draw of noise the moment it exists; a killed process cannot take that back."""
    original = Noise.lattice_gaussian
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def witnessed(self: Noise, count: int, scale: float) -> np.ndarray:
        drawn = original(self, count, scale)
        os.write(file, f"{scale!r} {hashlib.sha256(drawn.tobytes()).hexdigest()}\n".encode())
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
    asked = job(folder)  # here, because a child that is killed while it writes the data would leave half of it

    def run() -> None:
        record_noise(folder / "noise.log")
        before()
        make(asked, folder / "r")

    child = forked(run)
    killer(child)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def outcome(folder: Path) -> dict[str, object]:
    """What stands on disk after the last run, against what was really drawn."""
    lines = (folder / "noise.log").read_text().splitlines() if (folder / "noise.log").exists() else []
    certificate = json.loads((folder / "r" / "certificate.json").read_text())
    unpaid, spent = Counter(line.split()[0] for line in lines), []
    for asked in certificate["mechanisms"]:
        mechanism = mechanism_from_dict({name: value for name, value in asked.items() if name != "purpose"})
        scale = repr(mechanism.noise_multiplier * 2.0**LATTICE_BITS * mechanism.draws**0.5)
        drawn = unpaid.pop(scale, 0)
        each = replace(mechanism, noise_multiplier=mechanism.noise_multiplier * mechanism.draws**0.5)
        spent += [replace(each, rounds=drawn)] if drawn else []
        unpaid["more than were paid for"] += max(0, drawn - mechanism.rounds * mechanism.draws)
    known = ("r", "r.lab", "noise.log", "data.npz", "public.npz")
    leftovers = [str(p.relative_to(folder)) for p in folder.iterdir() if p.name not in known]
    leftovers += [p.name for p in (folder / "r.lab").glob("*sealed*")]
    return {
        "unpaid": sum(unpaid.values()),
        "ok": verify(folder / "r").ok,
        "certified": certificate["guarantee"]["epsilon"],
        "spent": epsilon_pld(spent, certificate["guarantee"]["delta"]) if spent else 0.0,
        "draws": len(lines),
        "repeated": len(lines) - len({line.split()[1] for line in lines}),
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


def resumed(folder: Path, first: int) -> dict[str, object]:
    """What comes of a run that ended so, and of the next one, if it was not done."""
    left = sorted(path.name for path in folder.glob("r.lab/tape/*"))
    second = 0 if (folder / "r").exists() else attempt(folder, lambda pid: None)
    return {"first": first, "second": second, "left": left, **outcome(folder)}


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

        found.append({"moment": moment, **resumed(folder, attempt(folder, kill))})
    return found


def fsync_kills(root: Path, stride: int) -> list[dict[str, object]]:
    """Die at every `stride`-th durable write, once just before it and once just after it."""
    found, number = [], 1 - stride
    while True:
        number += stride
        for after in (False, True):
            folder = fresh(root / f"{number}-{after}")
            first = attempt(folder, lambda pid: None, before=lambda n=number, late=after: die_at(n, late=late))
            if first == 0:
                return found
            found.append({"fsync": number, "after": after, **resumed(folder, first)})


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
    where, METHOD, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[4])
    remember_compositions()
    make(job(fresh(where / "warm")), where / "warm" / "r")
    results = random_kills(where, number) if sys.argv[3] == "random" else fsync_kills(where, number)
    print(json.dumps(results))
