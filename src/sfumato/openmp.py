"""OpenMP's threads wait for each other by spinning, which starves other processes: here they spin briefly, then sleep.

Beside two busy processes on two cores, training steps of a small network are two to ten times slower with threads that
spin than with threads that sleep; alone on the machine, sleeping at once costs a fifth of the speed of short steps. A
short spin has most of both (`python benchmarks/threads.py`). The setting is read when torch is loaded, so `sfumato`
makes it before anything else is imported; a user's own setting wins, and child processes inherit it.
"""

from __future__ import annotations

import os

SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # any of these is a user's own choice
CHOSEN = {"GOMP_SPINCOUNT": "10000"}  # by default 300,000: a spin of some milliseconds


def let_threads_sleep() -> None:
    if not any(name in os.environ for name in SETTINGS):
        os.environ.update(CHOSEN)
