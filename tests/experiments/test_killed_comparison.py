"""kill -9 of a whole comparison, driver and workers: what was finished stays as it is, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sfumato.experiments.cell import MADE
from sfumato.lab.store import Store
from sfumato.release import verify

from commands import COMMAND, sfumato

RECIPE = """
title = "Digits"
source = "A test"
measure = ["nearest"]
method = "dp-merf"

[profiles.small]
count = 40
set = { frequencies = 50, batch = 40, hidden = 16, steps = 150 }

[[grid]]
data = "digits"
epsilon = 8
repeats = 4
"""


def finished(store: Path) -> dict[Path, bytes]:
    """Every file of the cells whose release is made, but for locks and what is still being judged."""
    cells = [cell for cell in Store(store).cells() if MADE in cell.measures()] if store.exists() else []
    files = [file for cell in cells for file in [*cell.release.rglob("*"), cell.folder / "measures" / f"{MADE}.json"]]
    return {file: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs groups of processes")
def test_finished_cells_outlive_driver_and_workers(tmp_path: Path) -> None:
    recipe, store = tmp_path / "small.toml", tmp_path / "runs"
    recipe.write_text(RECIPE)
    words = ["run", str(recipe), "--out", str(store), "--workers", "2"]
    run = subprocess.Popen(
        [*COMMAND, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 240
    while not finished(store) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    kept = finished(store)
    assert kept
    assert sfumato(*words).code == 0
    assert {file: file.read_bytes() for file in kept} == kept
    cells = list(Store(store).cells())
    assert len(cells) == 4
    assert all(verify(cell.release).ok for cell in cells)
