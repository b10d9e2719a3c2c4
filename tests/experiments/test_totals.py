"""What cells on the same data cost together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sfumato.experiments.cell import CellJob, run_cell
from sfumato.experiments.totals import composed, totals
from sfumato.lab.store import Store
from sfumato.making.release import Job
from sfumato.privacy import GaussianSum, epsilon_pld

SETTINGS = {"frequencies": "50", "steps": "3", "batch": "40", "hidden": "16"}


def run(store: Path, epsilon: float, *, data: str = "digits", repeat: int = 0) -> None:
    job = Job("digits", "dp-merf", epsilon, delta=1e-5, count=20, settings=tuple(SETTINGS.items()))
    inputs = {"data": data, "data_content": "the same", "epsilon": epsilon, "delta": 1e-5, "repeat": repeat}
    assert not run_cell(store, CellJob(f"{epsilon} {repeat}", inputs, job, ())).problem


def test_cells_of_one_data_set_add_up_whatever_it_is_called(tmp_path: Path) -> None:
    run(tmp_path, 1.0)
    (one,) = totals(Store(tmp_path))
    assert one.epsilon == pytest.approx(1.0, rel=0.01)
    run(tmp_path, 1.0, repeat=1)
    run(tmp_path, 1.0, data="the digits")
    (three,) = totals(Store(tmp_path))
    assert three.cells == 3
    assert three.data == "digits = the digits" or three.data == "the digits = digits"
    assert math.sqrt(3) * 0.95 < three.epsilon < 3, "more than one costs, and less than the plain sum"
    assert three.accountant == "PLD"


def test_a_killed_cell_counts(tmp_path: Path) -> None:
    run(tmp_path, 1.0)
    (cell,) = Store(tmp_path).cells()
    for path in sorted(cell.release.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    cell.release.rmdir()
    assert totals(Store(tmp_path))[0].epsilon > 0.9


def test_a_cell_without_noise_is_no_guarantee(tmp_path: Path) -> None:
    run(tmp_path, 1.0)
    run(tmp_path, math.inf)
    (total,) = totals(Store(tmp_path))
    assert (total.epsilon, total.without_noise) == (math.inf, 1)


def test_large_sums_are_counted_by_rdp() -> None:
    few, many = ([GaussianSum(noise_multiplier=0.3)] * n for n in (1, 10))
    assert composed(few, 1e-5) == (epsilon_pld(few, 1e-5), "PLD")
    epsilon, accountant = composed(many, 1e-5)
    assert accountant == "RDP"
    assert epsilon > composed(few, 1e-5)[0]
    assert composed([], 1e-5)[0] == 0
