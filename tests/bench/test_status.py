"""What one sees of a store from another terminal."""

from __future__ import annotations

from pathlib import Path

from sfumato.bench import status
from sfumato.bench.store import Store

INPUTS = {"method": "dp-merf", "data": "digits", "epsilon": 1.0}


def test_a_cell_is_begun_then_running_then_released(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert status.text(status.status(store)) == "No cell has been begun here."
    cell = store.cell(INPUTS)

    def state() -> str:
        (line,) = status.status(store)
        return str(line["state"])

    assert state() == "begun"
    with cell.lab:
        assert state() == "running"
        cell.release.mkdir()
        cell.add("fid", {"value": 1.0})
    assert state() == "released"
    (line,) = status.status(store)
    assert line["measures"] == ["fid"]
    assert "1 released, 0 running, 0 begun" in status.text([line])
