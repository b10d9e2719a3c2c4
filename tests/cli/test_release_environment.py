"""sfumato release where the system gets in the way: full disks, locks, links, odd environments and signals."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cli.checking import DRAWS, drawn, left_in, nothing_half_written, refused, resumed, writes_up_to

from commands import process, request, sfumato, tiny

DISK_FULL = {
    "at the notice of the lab": (20, "The lab folder cannot be used"),
    "at the job": (100, "run.json"),
    "at the ledger": (1000, "could not be written"),
    "at the working copy": (5000, "working copy"),
    "at the preview": (7000, "Expected to write the release"),
}


@pytest.mark.parametrize("name", DISK_FULL)
def test_disk_full(name: str, tmp_path: Path) -> None:
    size, needle = DISK_FULL[name]
    data, out = tiny(tmp_path), tmp_path / "r"
    with writes_up_to(size):
        refused(sfumato(*request(data, out)), 5, needle)
    nothing_half_written(tmp_path)
    assert sfumato(*request(data, out)).code == 0, "it resumes once there is space"
    assert drawn(tmp_path / "r.lab") <= DRAWS
    assert sfumato("verify", out).code == 0


def test_disk_full_at_an_answer(tmp_path: Path) -> None:
    data, more = tiny(tmp_path), ("--set=frequencies=500",)
    with writes_up_to(8000):
        refused(sfumato(*request(data, tmp_path / "r", *more)), 5, "A noisy answer could not be written")
    nothing_half_written(tmp_path)
    assert sfumato(*request(data, tmp_path / "r", *more)).code == 0
    assert drawn(tmp_path / "r.lab") == DRAWS - 1, "the draw that was lost is not drawn again"


def test_disk_full_at_a_mark_in_the_ledger(tmp_path: Path) -> None:
    data, more = tiny(tmp_path), ("--size=4", "--set=frequencies=5")
    with writes_up_to(2500):
        refused(sfumato(*request(data, tmp_path / "r", *more)), 5, "no noise was drawn")
    nothing_half_written(tmp_path)
    before = drawn(tmp_path / "r.lab")
    assert 0 < before < DRAWS
    assert sfumato(*request(data, tmp_path / "r", *more)).code == 0
    assert before < drawn(tmp_path / "r.lab") < DRAWS, "half a mark counts as one, and its draw as lost"


def test_lab_held_by_another_run(tmp_path: Path) -> None:
    (tmp_path / "r.lab").mkdir(mode=0o700)
    with (tmp_path / "r.lab" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(sfumato(*request(tiny(tmp_path), tmp_path / "r")), 5, "Another run is working in this lab folder")
    assert sfumato(*request(tiny(tmp_path), tmp_path / "r")).code == 0


def test_ledger_held_by_another_run(stopped: Path, lab: Path) -> None:
    with (lab / "ledger.jsonl").open("a") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        refused(resumed(stopped, lab), 5, "Another run is writing this ledger")


def test_lab_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "r.lab").write_text("mine")
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r")), 5, "The lab folder cannot be used")
    assert (tmp_path / "r.lab").read_text() == "mine"


def test_lab_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r.lab").symlink_to(tmp_path / "elsewhere")
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r")), 5, "got a link or another user's folder")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_lab_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "r.lab").mkdir(mode=0o777)
    os.chown(tmp_path / "r.lab", 12345, 12345)
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r")), 5, "got a link or another user's folder")
    assert not list((tmp_path / "r.lab").iterdir())


def test_working_copy_is_a_link(stopped: Path, lab: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("somebody's file")
    (lab / "sealed.pixels").symlink_to(tmp_path / "victim")
    assert resumed(stopped, lab).code == 0, "the link is taken away, and the copy is a file of its own"
    assert (tmp_path / "victim").read_text() == "somebody's file"


@pytest.mark.parametrize("zone", ["Nowhere/Town", ":/dev/null", "A" * 300])
def test_odd_time_zone(zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert sfumato(*request(tiny(tmp_path), tmp_path / "r")).code == 0
    time.tzset()


def test_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "SFUMATO_CACHE", "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    assert sfumato(*request(tiny(tmp_path), tmp_path / "r")).code == 0


def test_no_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_count: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(os, "urandom", none)
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r")), 5, "Expected the operating system to give entropy")
    nothing_half_written(tmp_path)


def test_folder_that_was_deleted_under_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused(sfumato(*request(tiny(tmp_path), "r")), 5, "No such file or directory")
    assert left_in(tmp_path) == []


def test_locale_that_knows_only_ascii(tmp_path: Path) -> None:
    out = tmp_path / "Gemälde"
    run = process(*request(tiny(tmp_path), out), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert sfumato("verify", out).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_with_one_line_and_the_run_resumes(number: signal.Signals, tmp_path: Path) -> None:
    data, out, lab = tiny(tmp_path), tmp_path / "r", tmp_path / "r.lab"

    def interrupt() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and (not (lab / "tape").exists() or drawn(lab) < DRAWS):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=interrupt)
    sender.start()
    outcome = sfumato(*request(data, out, steps=800))
    sender.join()
    assert outcome.code == 128 + number
    assert outcome.err == "Stopped. What was charged stays charged; the same command resumes.\n"
    nothing_half_written(tmp_path)
    before = (lab / "ledger.jsonl").read_bytes()
    assert sfumato(*request(data, out, steps=800)).code == 0
    assert (lab / "ledger.jsonl").read_bytes() == before
    assert drawn(lab) == DRAWS


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (DISK_FULL))) >= 5
