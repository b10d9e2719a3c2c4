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
    assert result["unpaid"] == 0, "a draw that was not paid for"
    assert result["repeated"] == 0, "noise was used twice"
    assert result["leftovers"] == [], result


@pytest.mark.parametrize(("method", "count"), [("dp-merf", 20), ("dp-imgsyn", 12), ("dp-sgd", 12)])
def test_random_instants(method: str, count: int, tmp_path: Path) -> None:
    results = drive(tmp_path, method, "random", count)
    assert len(results) == count
    for result in results:
        check(result)


def test_durable_writes_of_a_sampled_method(tmp_path: Path) -> None:
    """In the middle of its rounds, so that those on the tape are recalled, a block is lost and the others are drawn."""
    results = drive(tmp_path, "dp-imgsyn", "fsync", 7)
    assert len(results) > 10
    for result in results:
        check(result)
    assert any(8 < r["draws"] < 32 for r in results)
    assert any(r["draws"] == 32 for r in results)


def test_every_durable_write(tmp_path: Path) -> None:
    results = drive(tmp_path, "dp-merf", "fsync", 1)
    assert len(results) > 40
    for result in results:
        check(result)
    assert any(r["draws"] == 8 for r in results)


def test_durable_writes_of_a_training(tmp_path: Path) -> None:
    """A checkpoint takes the place of answers: it goes on from there, and no noise is drawn again."""
    results = drive(tmp_path, "dp-sgd", "fsync", 9)
    assert len(results) > 10
    for result in results:
        check(result)
        assert len(result["left"]) <= 16 + 2, "a checkpoint, the answers since, and one that is being written"
    resumed = [result for result in results if "0000.checkpoint" in result["left"]]
    assert any(16 < r["draws"] < 40 for r in resumed), "rounds that were lost stay spent"
    assert any(r["draws"] == 40 for r in resumed)
