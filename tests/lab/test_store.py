"""The store: addressed by content, added to and never changed, safe for many writers, and readable as it lies."""

from __future__ import annotations

import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from sfumato.errors import DataError, EnvironmentProblem
from sfumato.lab.store import Store

INPUTS = {"method": "dp-merf", "data": "digits", "epsilon": 1.0, "settings": {"steps": 3}}


def test_the_same_inputs_are_the_same_cell_in_any_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    first = store.cell(INPUTS)
    assert store.cell(dict(reversed(INPUTS.items()))) == first
    assert store.cell({**INPUTS, "epsilon": 2.0}) != first
    assert first.inputs() == INPUTS
    assert len(list(store.cells())) == 2


def test_what_is_there_is_never_changed(tmp_path: Path) -> None:
    cell = Store(tmp_path).cell(INPUTS)
    cell.add("fid", {"value": 1.0})
    before = (cell.folder / "measures" / "fid.json").read_bytes()
    cell.add("fid", {"value": 2.0})
    assert (cell.folder / "measures" / "fid.json").read_bytes() == before
    assert cell.measures()["fid"]["value"] == 1.0
    assert cell.has("fid")
    assert not cell.has("gen2real")


def test_a_measure_is_a_row_with_its_inputs(tmp_path: Path) -> None:
    cell = Store(tmp_path).cell({**INPUTS, "epsilon": math.inf})
    cell.add("fid", {"value": 1.5})
    row = cell.measures()["fid"]
    assert (row["cell"], row["measure"], row["method"], row["value"]) == (cell.digest, "fid", "dp-merf", 1.5)
    assert json.loads(row["settings"]) == {"steps": 3}
    assert row["epsilon"] == math.inf


def add(folder: Path, number: int) -> None:
    cell = Store(folder).cell(INPUTS)
    for name in range(20):
        cell.add(f"m{name}", {"value": number})


def test_writers_at_the_same_time_lose_nothing_and_break_nothing(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as pool:
        list(pool.map(add, [tmp_path] * 8, range(8)))
    cell = Store(tmp_path).cell(INPUTS)
    assert set(cell.measures()) == {f"m{name}" for name in range(20)}
    assert not [path for path in cell.folder.rglob("*") if path.name.startswith(".")]


def test_duckdb_and_pandas_read_it_as_it_lies(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for epsilon in (1.0, 10.0):
        cell = store.cell({**INPUTS, "epsilon": epsilon})
        cell.add("fid", {"value": 3 * epsilon, "seconds": 1.0})
        cell.add("gen2real", {"value": 0.5, "seconds": 1.0})
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(
        f"select epsilon, value from '{tmp_path}/cells/*/measures/*.json' where measure = 'fid' order by 1"
    )
    assert found.fetchall() == [(1.0, 3.0), (10.0, 30.0)]


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    cell = Store(tmp_path).cell(INPUTS)
    (cell.folder / "inputs.json").write_text('{"method": "another"}')
    with pytest.raises(DataError, match="named after"):
        Store(tmp_path).cell(INPUTS)
    (cell.folder / "inputs.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        Store(tmp_path).cell(INPUTS)
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be used"):
        Store(tmp_path / "file").cell(INPUTS)
