"""What a refused request and a stopped run must leave behind, and how tests look at it."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from commands import Outcome, request, sfumato

DRAWS = 8  # of one full-batch round
Change = Callable[[Path], object]


def refused(outcome: Outcome, code: int, needle: str) -> None:
    """A sentence with the right exit code: short, without a traceback, and about what was wrong."""
    assert outcome.code == code, outcome
    assert needle in outcome.said
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("Usage:") or 1 <= len(outcome.err.splitlines()) <= 3, outcome.err


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "tiny.npz")


def nothing_half_written(folder: Path) -> None:
    """No release, no temporary file, and in the lab nothing of the pixels."""
    assert not (folder / "r").exists()
    assert not [p for p in folder.rglob("*") if ".tmp" in p.name or p.name == "sealed.pixels"]


def content(line: bytes) -> dict:
    return json.loads(line.split(b" ", 1)[1])


def drawn(lab: Path) -> int:
    """How many draws of noise the answers on the tape hold."""
    answers = []
    for path in (lab / "tape").glob("*.npz"):
        with np.load(path) as packed:
            answers.append(int(packed["draws"]))
    return sum(answers)


@contextmanager
def writes_up_to(size: int) -> Iterator[None]:
    """Files cannot grow beyond this many bytes, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def resumed(stopped: Path, lab: Path, *more: object) -> Outcome:
    """The command of the stopped run once more, in a copy of its lab."""
    return sfumato(*request(stopped / "tiny.npz", lab.with_name("r"), *more))
