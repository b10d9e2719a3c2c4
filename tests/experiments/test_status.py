"""What one sees of a store from another terminal."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sfumato.experiments import status
from sfumato.experiments.cell import CellJob, Outcome
from sfumato.experiments.live import watching
from sfumato.lab.store import Store
from sfumato.making.release import Job
from sfumato.progress import Stage, heard_by, track

INPUTS = {"method": "dp-merf", "data": "digits", "epsilon": 1.0}


def test_a_cell_waits_then_runs_then_is_begun_or_released(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert status.status_text(status.store_status(tmp_path)) == "No cell has been begun here."
    cell = store.cell(INPUTS)

    def state() -> str:
        (line,) = status.store_status(tmp_path)
        return str(line["state"])

    assert state() == "waiting"
    with cell.lab:
        assert state() == "running"
        cell.ledger.write_text("")  # what it has paid is on disk, and then its process is killed
    assert state() == "begun"
    with cell.lab:
        cell.release.mkdir()
        cell.add("fid", {"value": 1.0})
    assert state() == "released"
    (line,) = status.store_status(tmp_path)
    assert line["measures"] == ["fid"]
    assert "1 released, 0 running, 0 begun, 0 waiting" in status.status_text([line])


def test_what_a_cell_does_can_be_seen_from_elsewhere(tmp_path: Path) -> None:
    cell = Store(tmp_path).cell(INPUTS)
    with cell.lab:
        cell.say(Stage("teacher", 30, 120, 2.0))
        (line,) = status.store_status(tmp_path)
        assert status.shown(line) == ("releasing: teacher", "30 of 120", "2.0/s", "45 s left")
        assert "releasing: teacher, 30 of 120, 2.0/s, 45 s left" in status.status_text([line])
    cell.ledger.write_text("")
    (cell.folder / ".stage").write_text("{")  # half of a file, or someone else's
    assert cell.stage() is None
    assert status.store_status(tmp_path)[0]["stage"] == "releasing"


def test_a_listener_hears_instead_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sfumato.progress.LISTENER_EVERY", -1.0)
    monkeypatch.setattr("sfumato.progress.QUIET_LINE_EVERY", -1.0)
    heard: list[Stage] = []
    with heard_by(heard.append):
        assert list(track(range(3), what="work", total=3)) == [0, 1, 2]
    assert [(stage.what, stage.done, stage.total) for stage in heard] == [("work", n, 3) for n in range(4)]
    assert heard[-1].rate > 0
    assert heard[0].left is None
    assert capsys.readouterr().err == ""
    list(track(range(3), what="work", total=3))
    assert len(heard) == 4
    assert "work: 2 of 3" in capsys.readouterr().err


def test_a_run_shows_a_table_of_what_is_under_way_or_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [CellJob(f"cell {n}", {**INPUTS, "repeat": n}, Job("digits"), ()) for n in range(3)]
    with watching(tmp_path, jobs) as watched, Store(tmp_path).cell(jobs[1].inputs).lab:
        watched.end(Outcome("cell 0", "", "Something is wrong."))
        Store(tmp_path).cell(jobs[1].inputs).say(Stage("teacher", 1, 4, 0.5))
        table = watched.table()
        assert [list(column.cells) for column in table.columns] == [
            ["cell 1"],
            ["releasing: teacher"],
            ["1 of 4"],
            ["0.5/s"],
            ["6 s left"],
        ]
        assert "1 of 3" in str(table.title)
        assert "1 with a problem" in str(table.title)
    assert "1 of 3" in (lines := capsys.readouterr().err)
    assert "cell 0: Something is wrong." in lines
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with watching(tmp_path, jobs) as watched:
        watched.end(Outcome("cell 0", ""))
        time.sleep(1.2)
    assert "0 of 3" in capsys.readouterr().err


def test_who_looks_all_the_time_stops_no_run(tmp_path: Path) -> None:
    cell, over = Store(tmp_path).cell(INPUTS), threading.Event()

    def look() -> None:
        while not over.is_set():
            status.store_status(tmp_path)

    looker = threading.Thread(target=look)
    with cell.lab:
        pass
    looker.start()
    try:
        for _ in range(300):
            with cell.lab:
                pass
    finally:
        over.set()
        looker.join()
