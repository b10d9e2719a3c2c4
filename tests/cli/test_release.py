"""sfumato release: what it prints, two runs into one folder, and which requests are refused."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, process, request, sfumato, tiny


def test_release_says_what_to_do_next(made: tuple[Path, Path, Outcome]) -> None:
    _, release, outcome = made
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert "Released 12 images at epsilon 8" in outcome.out
    for line in (f"{release}/preview.png", f"sfumato verify {release}", f"{release}.lab (private)"):
        assert line in outcome.out


def test_json(larger: tuple[Path, Path, Outcome]) -> None:
    assert 0 < json.loads(larger[2].out)["epsilon"] <= 8


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


PARAMETERS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "epsilon zero": (("--epsilon=0",), 2, "Expected epsilon > 0, got 0.0"),
    "epsilon negative": (("--epsilon=-1",), 2, "Expected epsilon > 0, got -1.0"),
    "epsilon minus infinity": (("--epsilon=-inf",), 2, "Expected epsilon > 0, got -inf"),
    "epsilon not a number": (("--epsilon=nan",), 2, "Expected epsilon > 0, got nan"),
    "epsilon a word": (("--epsilon=abc",), 2, "got 'abc'"),
    "epsilon empty": (("--epsilon=",), 2, "got ''"),
    "epsilon with a comma": (("--epsilon=1,0",), 2, "use a point, not a comma"),
    "epsilon 20 without the flag": (("--epsilon=20",), 2, "--i-know-epsilon-is-large"),
    "epsilon a million without the flag": (("--epsilon=1e6",), 2, "--i-know-epsilon-is-large"),
    "epsilon a million with the flag": (("--epsilon=1e6", "--i-know-epsilon-is-large"), 2, "got 1e+06"),
    "epsilon that overflows to infinity": (("--epsilon=1e400",), 2, "write inf if you mean it"),
    "delta zero": (("--delta=0",), 2, "below 1/90 (one over the number of records), got 0.0"),
    "delta negative": (("--delta=-1",), 2, "got -1.0"),
    "delta one": (("--delta=1",), 2, "got 1.0"),
    "delta one over the records": (("--delta", str(1 / 90)), 2, "below 1/90"),
    "delta not a number": (("--delta=nan",), 2, "got nan"),
    "delta below what floats can count": (("--delta=1e-300",), 2, "from 1e-15"),
    "delta a word": (("--delta=abc",), 2, "--delta"),
    "unknown method": (("--method=dp-murf",), 2, "sfumato; got 'dp-murf'"),
    "unknown setting": (("--set=stepps=3",), 2, "steps"),
    "setting of the wrong type": (("--set=steps=many",), 2, "Expected steps as int, got 'many'"),
    "setting a fraction": (("--set=steps=1.5",), 2, "Expected steps as int, got '1.5'"),
    "setting without a value": (("--set=steps",), 2, "Expected --set name=value, got 'steps'"),
    "setting without a name": (("--set==3",), 2, "got ''"),
    "setting not a number": (("--set=learning_rate=nan",), 2, "learning_rate"),
    "setting infinite": (("--set=learning_rate=inf",), 2, "learning_rate"),
    "setting a list with a word": (("--set=length_scales=0.1,x",), 2, "length_scales"),
    "count zero": (("--count=0",), 2, "got 0"),
    "count negative": (("--count=-3",), 2, "got -3"),
    "count a fraction": (("--count=1.5",), 2, "--count"),
    "count beyond memory": (("--count=1000000000000",), 2, "got 1000000000000"),
    "count beyond integers": (("--count=1" + "0" * 30,), 2, "count"),
    "public data that is not there": (("--public=nowhere",), 2, "public"),
    "size zero": (("--size=0",), 2, "size"),
    "size negative": (("--size=-8",), 2, "size"),
    "unknown colour mode": (("--mode=sepia",), 2, "--mode"),
    "a class twice": (("--classes=a,b,a",), 2, "got 'a' twice"),
    "an option that does not exist": (("--epsilonn=1",), 2, "--epsilonn"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter(name: str, tmp_path: Path) -> None:
    more, code, needle = PARAMETERS[name]
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r", *more)), code, needle)
    assert left_in(tmp_path) == []


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without data": (("--epsilon=1", "--out=r"), "Missing argument"),
    "without epsilon": (("tiny.npz", "--out=r"), "Missing option '--epsilon'"),
    "without out": (("tiny.npz", "--epsilon=1"), "Missing option '--out'"),
    "of nothing": (("nowhere.npz", "--epsilon=1", "--out=r"), "nowhere.npz"),
    "of an empty name": (("", "--epsilon=1", "--out=r"), "Expected"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("release", *arguments), 2, needle)
    assert left_in(workdir) == []


def test_epsilon_of_a_billionth_works(tmp_path: Path) -> None:
    outcome = sfumato(*request(tiny(tmp_path), tmp_path / "r", "--epsilon=1e-9"))
    assert outcome.code == 0, outcome.err
    assert sfumato("verify", tmp_path / "r").code == 0


def test_the_largest_epsilon_with_the_flag_works(tmp_path: Path) -> None:
    flag = "--i-know-epsilon-is-large"
    outcome = sfumato(*request(tiny(tmp_path), tmp_path / "r", "--epsilon=100", flag))
    assert outcome.code == 0, outcome.err
    assert sfumato("verify", tmp_path / "r").code == 0


METHOD_SETTINGS = (
    "steps=0",
    "steps=-1",
    "frequencies=0",
    "count_share=0",
    "count_share=2",
    "hidden=0",
    "codes=0",
    "latent=0",
    "length_scales=0",
    "seed=1" + "0" * 30,
)


@pytest.mark.parametrize("setting", METHOD_SETTINGS)
def test_a_setting_out_of_range_is_refused_before_anything_is_paid(setting: str, tmp_path: Path) -> None:
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "r", "--set", setting)), 2, setting.partition("=")[0])


def a_file(folder: Path) -> Path:
    (folder / "r").write_text("mine")
    return folder / "r"


def an_empty_folder(folder: Path) -> Path:
    (folder / "r").mkdir()
    return folder / "r"


def a_full_folder(folder: Path) -> Path:
    (folder / "r").mkdir()
    return a_file(folder / "r").parent


def a_dead_link(folder: Path) -> Path:
    (folder / "r").symlink_to(folder / "nowhere")
    return folder / "r"


def within_a_file(folder: Path) -> Path:
    return a_file(folder) / "r"


TARGETS: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "a file": (a_file, 2, "got one that exists"),
    "an empty folder": (an_empty_folder, 2, "got one that exists"),
    "a folder with something in it": (a_full_folder, 2, "got one that exists"),
    "a dead link": (a_dead_link, 2, "got one that exists"),
    "in a folder that is not there": (lambda f: f / "nowhere" / "r", 2, "Expected the folder around --out to exist"),
    "in a file": (within_a_file, 2, "Expected the folder around --out to exist"),
    "the data itself": (lambda f: f / "tiny.npz", 2, "got one that exists"),
    "a lab's name": (lambda f: f / "r.lab", 2, "does not end in .lab"),
    "a name too long for what is put behind it": (lambda f: f / ("r" * 250), 2, "at most 200 bytes"),
    "a name too long for any file": (lambda f: f / ("é" * 250), 2, "at most 200 bytes"),
    "where nobody can write": (lambda f: Path("/proc/r"), 5, "The lab folder cannot be used"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str, tmp_path: Path) -> None:
    build, code, needle = TARGETS[name]
    data, out = tiny(tmp_path), build(tmp_path)
    before = {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")}
    refused(sfumato(*request(data, out)), code, needle)
    assert {p: p.lstat().st_mtime_ns for p in tmp_path.rglob("*")} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; /proc stands in above")
def test_target_in_a_read_only_folder(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    refused(sfumato(*request(tiny(tmp_path), tmp_path / "closed" / "r")), 5, "The lab folder cannot be used")


@pytest.mark.parametrize("through_a_link", [False, True])
def test_target_inside_the_data(through_a_link: bool, tmp_path: Path) -> None:
    for label in "abc":
        (tmp_path / "faces" / label).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "faces")
    out = tmp_path / ("link" if through_a_link else "faces") / "a" / "r"
    refused(sfumato(*request(tmp_path / "faces", out)), 2, "outside the private data")
    assert not out.exists()


def test_there_are_enough_cases() -> None:
    assert sum(map(len, (PARAMETERS, REQUESTS, TARGETS))) >= 54
