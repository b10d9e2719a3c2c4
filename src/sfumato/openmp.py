"""OpenMP's threads wait for each other by spinning, which starves other processes: they are told to sleep instead.

Beside two busy processes on two cores, training steps of a small network are many times slower with spinning threads
than with sleeping ones; alone on the machine, sleeping costs little (`python benchmarks/threads.py` measures both). The
setting is read when torch is loaded, so `sfumato` sets it as the first thing that is imported; a user's own setting
wins, and child processes inherit it.
"""

from __future__ import annotations

import os

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # any of these is a user's own choice
CHOSEN = {"GOMP_SPINCOUNT": "0"}


def let_threads_sleep() -> None:
    if not any(name in os.environ for name in SETTINGS):
        os.environ.update(CHOSEN)
