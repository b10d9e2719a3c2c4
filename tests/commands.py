"""Running commands in tests: in this process, or in one of their own, on a data set that takes a second."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from sfumato.cli import main

COMMAND = (sys.executable, "-c", "from sfumato.cli import main; main()")
SMALL = ("steps=3", "frequencies=20", "hidden=8", "batch=24")


@dataclass(frozen=True)
class Outcome:
    """What a command left on the screen."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """Standard error without the frame that usage errors are drawn in."""
        return " ".join(self.err.replace("│", " ").split())


def sfumato(*arguments: object) -> Outcome:
    """Run a command in this process, which has imported everything already."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    out, err, started = io.StringIO(), io.StringIO(), time.monotonic()
    try:
        with (
            patch.object(sys, "argv", ["sfumato", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as stopped,
        ):
            main()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code = stopped.value.code
    return Outcome(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue(), time.monotonic() - started)


def process(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """The same in a process of its own; slow, because it imports everything."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def tiny(folder: Path, *, count: int = 90, seed: int = 0) -> Path:
    """A data set of three classes."""
    path = folder / "tiny.npz"
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    np.savez(path, x=pixels, y=np.arange(count) % 3)
    return path


def request(data: object, out: object, *more: object, steps: int = 3) -> tuple[object, ...]:
    """A release that takes a second; of an option that is given twice the last one counts."""
    small = [part for setting in (*SMALL, f"steps={steps}") for part in ("--set", setting)]
    method = ("--method", "dp-merf")  # the quickest
    return (
        "release",
        data,
        *method,
        "--classes",
        "a,b,c",
        "--epsilon",
        "8",
        "--count",
        "12",
        *small,
        "--out",
        out,
        *more,
    )
