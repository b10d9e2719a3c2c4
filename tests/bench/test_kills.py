"""kill -9 at any instant: the resumed run finishes, redraws its noise, and counts everything that was spent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "killed_runs.py"


def drive(*arguments: object) -> list[dict]:
    done = subprocess.run(
        [sys.executable, DRIVER, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(result: dict) -> None:
    assert result["first"] in (0, -9), result
    assert result["second"] == 0, result
    assert result["ok"], result
    assert result["spent"] <= result["certified"] * (1 + 1e-6), "more was drawn than is certified"
    assert result["certified"] <= 1.0
    assert result["draws"] <= 8, "a draw that was not paid for"
    assert result["repeated"] == 0, "noise was used twice"
    assert result["leftovers"] == [], result


def test_twenty_random_instants(tmp_path: Path) -> None:
    results = drive(tmp_path, "random", 20)
    assert len(results) == 20
    assert any(r["first"] == -9 for r in results)
    for result in results:
        check(result)


@pytest.mark.slow
def test_every_durable_write(tmp_path: Path) -> None:
    results = drive(tmp_path, "fsync")
    assert len(results) > 40
    for result in results:
        check(result)
    assert any(r["draws"] == 8 for r in results)
