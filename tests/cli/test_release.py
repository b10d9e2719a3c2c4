"""sfumato release as a user meets it: what it says, and two runs that want the same folder."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from commands import Outcome, process, request, sfumato, tiny


def test_release_says_what_to_do_next(made: tuple[Path, Path, Outcome]) -> None:
    _, release, outcome = made
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert "Released 12 images at epsilon 8" in outcome.out
    for line in (f"{release}/preview.png", f"sfumato verify {release}", f"{release}.lab (private)"):
        assert line in outcome.out


def test_release_twice_into_one_folder_is_refused(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    before = {p: p.stat().st_mtime_ns for p in release.rglob("*")}
    again = sfumato(*request(data, release))
    assert again.code == 2
    assert "got one that exists" in again.err
    assert {p: p.stat().st_mtime_ns for p in release.rglob("*")} == before


def test_release_without_a_limit_says_so_and_does_not_verify(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato(*request(made[0], tmp_path / "r", "--epsilon", "inf"))
    assert outcome.code == 0
    assert "NOT PRIVATE" in outcome.out
    assert "NOT PRIVATE" in outcome.err
    assert sfumato("verify", tmp_path / "r").code == 6


def test_of_two_runs_on_one_folder_exactly_one_wins(tmp_path: Path) -> None:
    data, out = tiny(tmp_path), tmp_path / "r"
    first = process(*request(data, out, steps=20_000))
    try:
        wait_for(tmp_path / "r.lab" / "ledger.jsonl", first)
        second = sfumato(*request(data, out, steps=20_000))
    finally:
        first.terminate()
        _, said = first.communicate(timeout=60)
    assert second.code == 5
    assert "Another run is working in this lab folder." in second.err
    assert first.returncode == 143, said
    assert said == "Stopped. What was charged stays charged; the same command resumes.\n"


def wait_for(path: Path, running: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def test_two_runs_at_once_leave_one_release(tmp_path: Path) -> None:
    data, out = tiny(tmp_path), tmp_path / "r"
    both = [process(*request(data, out, steps=300)) for _ in range(2)]
    said = [run.communicate(timeout=120)[1] for run in both]
    codes = sorted(run.returncode for run in both)
    assert codes[0] == 0, said
    assert codes[1] in (5, 2), said  # 2 where the winner was done before the other began
    assert sfumato("verify", out).code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r", "r.lab", "tiny.npz"]
