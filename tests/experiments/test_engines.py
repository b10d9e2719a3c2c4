"""Engines: many workers, killed workers and lost nodes all end in the same complete store."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato.errors import UsageError
from sfumato.experiments.cell import MADE, CellJob, run_cell
from sfumato.experiments.engines import engine_of, local, ray_cluster
from sfumato.lab.store import Store
from sfumato.making.release import Job
from sfumato.release import verify

SETTINGS = {"frequencies": "50", "steps": "20", "batch": "40", "hidden": "16"}


def cells(count: int, *, epsilon: float = 8.0, **settings: str) -> list[CellJob]:
    made = []
    for number in range(count):
        chosen = {**SETTINGS, **settings, "seed": str(number)}
        job = Job("digits", "dp-merf", epsilon, count=40, settings=tuple(chosen.items()))
        inputs = {"method": "dp-merf", "data": "digits", "epsilon": epsilon, "settings": chosen}
        made.append(CellJob(f"cell {number}", inputs, job, ()))
    return made


def complete(store: Path, jobs: list[CellJob]) -> None:
    """Every cell has a release that verifies, exactly once."""
    stored = list(Store(store).cells())
    assert len(stored) == len(jobs)
    for cell in stored:
        assert verify(cell.release).ok
        assert cell.measures()[MADE]["guarantee"] == "certified"


def test_a_cell_says_what_it_took_and_is_not_run_twice(tmp_path: Path) -> None:
    (job,) = cells(1)
    first = run_cell(tmp_path, job)
    made = Store(tmp_path).cell(job.inputs).measures()[MADE]
    assert first.problem == ""
    assert made["seconds"] > 0
    assert made["processor_seconds"] > 0
    assert 50 < made["peak_mb"] < 4_000
    assert made["spent"] <= 8.0
    assert {"sfumato", "torch"} <= set(made["versions"])
    assert run_cell(tmp_path, job) == first
    assert Store(tmp_path).cell(job.inputs).measures()[MADE] == made


def test_a_metric_with_settings_is_filed_under_these(tmp_path: Path) -> None:
    (plain,) = cells(1)
    settings = {"real2gen": {"archs": ["mlp"], "images_seen": 200, "most": 20}}
    asked = replace(plain, measures=("real2gen",), metrics=settings)
    assert run_cell(tmp_path, asked).problem == ""
    key = "real2gen (archs mlp, images_seen 200, most 20)"
    found = Store(tmp_path).cell(plain.inputs).measures()
    assert set(found) == {MADE, key}
    assert found[key]["details"]["judged"] == 20
    assert found[key]["judges"] == "utility"
    other = replace(asked, metrics={"real2gen": {"archs": ["mlp"], "images_seen": 200, "most": 10}})
    assert set(other.wanted()) != set(asked.wanted())


def test_a_problem_of_one_cell_is_a_sentence_and_stops_no_other(tmp_path: Path) -> None:
    jobs = [*cells(1), *cells(1, epsilon=-1.0), *cells(1, steps="0")]
    outcomes = list(local(tmp_path, jobs))
    assert [bool(outcome.problem) for outcome in outcomes] == [False, True, True]
    assert "Expected steps" in outcomes[2].problem


def test_workers_share_the_work(tmp_path: Path) -> None:
    jobs = cells(4)
    outcomes = list(engine_of("local", workers=2)(tmp_path, jobs))
    assert sorted(outcome.name for outcome in outcomes) == [job.name for job in jobs]
    complete(tmp_path, jobs)


def children() -> list[int]:
    """Worker processes of this one."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find its workers")
def test_a_killed_worker_costs_a_new_attempt_and_nothing_else(tmp_path: Path) -> None:
    jobs = cells(4, steps="400")

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            begun = [cell for cell in Store(tmp_path).cells() if (cell.folder / "release.lab").exists()]
            if begun and (workers := children()):
                os.kill(workers[0], signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = list(local(tmp_path, jobs, workers=2))
    killer.join()
    assert not [outcome.problem for outcome in outcomes if outcome.problem]
    complete(tmp_path, jobs)


def test_wrong_engines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local or ray"):
        engine_of("slurm")
    with pytest.raises(UsageError, match="workers"):
        list(engine_of("local", workers=0)(tmp_path, cells(1)))


def test_a_cluster_fills_the_store_though_a_node_dies_in_the_middle(two_nodes: Any, tmp_path: Path) -> None:
    jobs = cells(6, steps="200")
    outcomes = []
    worker = next(iter(two_nodes.worker_nodes))
    for outcome in ray_cluster(tmp_path, jobs):
        if not outcomes:
            two_nodes.remove_node(worker, allow_graceful=False)
        outcomes.append(outcome)
    assert not [outcome.problem for outcome in outcomes if outcome.problem]
    assert sorted(outcome.name for outcome in outcomes) == [job.name for job in jobs]
    complete(tmp_path, jobs)
