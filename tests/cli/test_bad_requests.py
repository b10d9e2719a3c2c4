"""Bad requests by name: each is refused in three lines and leaves nothing behind, or ends in an honest release."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sfumato.errors import BudgetExceeded, UsageError
from sfumato.privacy import (
    Budget,
    GaussianSum,
    Ledger,
    NoisyChoice,
    PrivateImages,
    ShardedAnswers,
    calibrate,
)

from commands import COMMAND, Outcome, process, request, sfumato, tiny
from toys import toy

DRAWS = 8  # of one full-batch round
Change = Callable[[Path], object]


def refused(outcome: Outcome, code: int, needle: str) -> None:
    """A sentence with the right exit code: short, without a traceback, and about what was wrong."""
    assert outcome.code == code, outcome
    assert needle in outcome.said
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("Usage:") or 1 <= len(outcome.err.splitlines()) <= 3, outcome.err
    assert outcome.seconds < 10


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "tiny.npz")


def nothing_half_written(folder: Path) -> None:
    """No release, no temporary file, and in the lab nothing of the pixels."""
    assert not (folder / "r").exists()
    assert not [p for p in folder.rglob("*") if ".tmp" in p.name or p.name == "sealed.pixels"]


# F. Parameters of privacy and of the method, through the command line.

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


COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "release without data": (("release", "--epsilon=1", "--out=r"), "Missing argument"),
    "release without epsilon": (("release", "tiny.npz", "--out=r"), "Missing option '--epsilon'"),
    "release without out": (("release", "tiny.npz", "--epsilon=1"), "Missing option '--out'"),
    "release of nothing": (("release", "nowhere.npz", "--epsilon=1", "--out=r"), "nowhere.npz"),
    "release of an empty name": (("release", "", "--epsilon=1", "--out=r"), "Expected"),
    "plan of nothing": (("plan", "nowhere", "--epsilon=1"), "nowhere"),
    "plan with public data that is not there": (("plan", "tiny.npz", "--epsilon=1", "--public=nowhere"), "nowhere"),
    "plan with epsilon zero": (("plan", "tiny.npz", "--epsilon=0"), "Expected epsilon > 0"),
    "evaluate without real data": (("evaluate", "r"), "Missing option '--real'"),
    "evaluate of nothing": (("evaluate", "r", "--real=tiny.npz"), "Expected a release folder"),
    "verify of a missing folder": (("verify", "r"), "Expected a release folder"),
    "verify of a file": (("verify", "tiny.npz"), "Expected a release folder"),
    "verify without a folder": (("verify",), "Missing argument"),
    "list of an unknown kind": (("list", "paintings"), "paintings"),
    "an unknown command": (("publish",), "publish"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments, needle = COMMANDS[name]
    refused(sfumato(*arguments), 2, needle)
    assert left_in(tmp_path) == []


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


# F. The same through the Python API.

MECHANISMS: dict[str, Callable[[], object]] = {
    "no rounds": lambda: GaussianSum(rounds=0),
    "negative rounds": lambda: GaussianSum(rounds=-1),
    "a billion rounds": lambda: GaussianSum(rounds=10**9),
    "half a round": lambda: GaussianSum(rounds=1.5),
    "sampling zero": lambda: GaussianSum(sampling=0),
    "sampling above one": lambda: GaussianSum(sampling=1.5),
    "sampling not a number": lambda: GaussianSum(sampling=math.nan),
    "negative noise": lambda: GaussianSum(noise_multiplier=-1),
    "infinite noise": lambda: GaussianSum(noise_multiplier=math.inf),
    "noise not a number": lambda: GaussianSum(noise_multiplier=math.nan),
    "share zero": lambda: GaussianSum(share=0),
    "share negative": lambda: GaussianSum(share=-1),
    "share not a number": lambda: GaussianSum(share=math.nan),
    "one candidate": lambda: NoisyChoice(candidates=1),
    "no shards": lambda: ShardedAnswers(shards=0),
    "a budget of nothing": lambda: Budget.of(0, count=10),
    "a charge without noise": lambda: Ledger(Budget(1, 1e-5)).charge(GaussianSum(), purpose="test"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanism(name: str) -> None:
    with pytest.raises(UsageError, match="Expected"):
        MECHANISMS[name]()


@pytest.mark.parametrize("bound", [0, -1, math.inf, math.nan])
def test_impossible_bound_is_refused_before_the_data_is_touched(bound: float) -> None:
    ledger = Ledger(Budget(1, 1e-5))
    query = PrivateImages.seal(toy(), ledger).open(GaussianSum(noise_multiplier=10), purpose="test")
    with pytest.raises(UsageError, match="l2_bound"):
        query(lambda image, label: image.sum()[None], l2_bound=bound)
    assert ledger.unbegun(ledger.charges[0]) == DRAWS


def test_budget_smaller_than_any_plan() -> None:
    with pytest.raises(BudgetExceeded, match="already spent"):
        calibrate([GaussianSum(rounds=10**8)], epsilon=1e-6, delta=1e-15)


def test_charge_beyond_the_budget_is_not_written(tmp_path: Path) -> None:
    ledger = Ledger(Budget(1, 1e-5), tmp_path / "ledger.jsonl")
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExceeded, match="at most 1"):
        ledger.charge(GaussianSum(noise_multiplier=0.5), purpose="test")
    ledger.close()
    assert (tmp_path / "ledger.jsonl").read_bytes() == before


def test_budget_that_cannot_pay_is_exit_4() -> None:
    assert BudgetExceeded.exit_code == 4


# A run that stopped: its lab is there, its release is not.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set and the lab of a run that was killed just before it wrote its release."""
    folder = tmp_path_factory.mktemp("stopped")
    assert sfumato(*request(tiny(folder), folder / "r")).code == 0
    (folder / "r").rename(folder / "whole")
    return folder


@pytest.fixture
def lab(stopped: Path, tmp_path: Path) -> Path:
    """A copy of that lab, which a test may spoil."""
    return Path(shutil.copytree(stopped / "r.lab", tmp_path / "r.lab"))


def resumed(stopped: Path, lab: Path, *more: object) -> Outcome:
    return sfumato(*request(stopped / "tiny.npz", lab.with_name("r"), *more))


def spent(lab: Path) -> list[dict]:
    """What the ledger has charged."""
    lines = (lab / "ledger.jsonl").read_bytes().splitlines()
    return [r["mechanism"] for r in map(content, lines) if r["record"] == "charge"]


def content(line: bytes) -> dict:
    return json.loads(line.split(b" ", 1)[1])


def drawn(lab: Path) -> int:
    """How many draws of noise the answers on the tape hold."""
    answers = []
    for path in (lab / "tape").glob("*.npz"):
        with np.load(path) as packed:
            answers.append(int(packed["draws"]))
    return sum(answers)


def refused_or_honest(outcome: Outcome, stopped: Path, lab: Path) -> None:
    """A refusal, or a release that verifies, states what was charged, and rests on no draw that was not paid."""
    assert "Traceback" not in outcome.err
    assert outcome.seconds < 10
    if outcome.code:
        assert outcome.code in (2, 4, 5, 6), outcome
        assert 1 <= len(outcome.err.splitlines()) <= 3, outcome.err
        nothing_half_written(lab.parent)
        return
    told, whole = (json.loads((f / "certificate.json").read_text()) for f in (lab.with_name("r"), stopped / "whole"))
    stated = [{k: v for k, v in m.items() if k != "purpose"} for m in told["mechanisms"]]
    assert stated == spent(lab)
    assert told["guarantee"]["epsilon"] >= whole["guarantee"]["epsilon"]
    assert drawn(lab) <= DRAWS * sum(m["rounds"] for m in stated), "more was drawn than was paid for"


def test_the_same_command_resumes_without_a_new_draw(stopped: Path, lab: Path) -> None:
    answer, before = (lab / "tape" / "0000-00000000.npz").read_bytes(), (lab / "ledger.jsonl").read_bytes()
    outcome = resumed(stopped, lab)
    assert outcome.code == 0, outcome.err
    refused_or_honest(outcome, stopped, lab)
    assert (lab / "tape" / "0000-00000000.npz").read_bytes() == answer
    assert (lab / "ledger.jsonl").read_bytes() == before


CHANGED: dict[str, tuple[str, ...]] = {
    "epsilon": ("--epsilon=2",),
    "delta": ("--delta=1e-6",),
    "count": ("--count=13",),
    "a setting": ("--set=steps=4",),
    "the classes": ("--classes=x,y,z",),
    "the size": ("--size=4",),
    "skipping bad files": ("--skip-bad",),
}


@pytest.mark.parametrize("what", CHANGED)
def test_changed_on_resume(what: str, stopped: Path, lab: Path) -> None:
    refused(resumed(stopped, lab, *CHANGED[what]), 2, "Expected the same job as the run that was started here")
    nothing_half_written(lab.parent)


def test_method_changed_on_resume(stopped: Path, lab: Path) -> None:
    text = (lab / "run.json").read_text()
    (lab / "run.json").write_text(text.replace('"dp-merf"', '"another"'))
    refused(resumed(stopped, lab), 2, "Expected the same job")


def test_data_of_another_path_on_resume(lab: Path, tmp_path: Path) -> None:
    refused(sfumato(*request(tiny(tmp_path, seed=1), lab.with_name("r"))), 2, "Expected the same job")


def test_data_with_more_records_on_resume(tmp_path: Path) -> None:
    data = tiny(tmp_path)
    with writes_up_to(1000):
        refused(sfumato(*request(data, tmp_path / "r")), 5, "could not be written")
    assert sfumato(*request(tiny(tmp_path, count=99), tmp_path / "r")).code == 0, "nothing was paid: a free start"
    shutil.rmtree(tmp_path / "r")
    refused(sfumato(*request(tiny(tmp_path, count=93), tmp_path / "r")), 2, "Expected the same job")


@pytest.mark.parametrize("other", ["--count=9", "--skip-bad", "--epsilon=1"])
def test_a_refused_run_that_paid_nothing_leaves_its_place_free(other: str, tmp_path: Path) -> None:
    data = tmp_path / "faces"
    for label in "abc":
        (data / label).mkdir(parents=True)
        (data / label / "0.png").write_bytes(b"no picture")
    refused(sfumato(*request(data, tmp_path / "r", "--size=8")), 3, "0.png")
    nothing_half_written(tmp_path)
    second = sfumato(*request(tiny(tmp_path), tmp_path / "r", other))
    assert second.code == 0, second.err


# G. The environment.


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


@contextmanager
def writes_up_to(size: int) -> Iterator[None]:
    """Files cannot grow beyond this many bytes, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
    assert sfumato(*request(data, out)).code == 0, "it resumes once there is room"
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


def test_reader_that_hangs_up(stopped: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([*COMMAND, "verify", stopped / "whole"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert run.returncode in (1, 5), "a verdict that nobody read is not a yes"
    assert "Traceback" not in run.stderr


def test_output_to_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([*COMMAND, "list", "methods"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 5
    assert run.stderr.splitlines() == ["The system refused: No space left on device."]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_with_one_line_and_the_run_resumes(number: signal.Signals, tmp_path: Path) -> None:
    data, out, lab = tiny(tmp_path), tmp_path / "r", tmp_path / "r.lab"

    def interrupt() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and (not (lab / "tape").exists() or drawn(lab) < DRAWS):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    friend = threading.Thread(target=interrupt)
    friend.start()
    outcome = sfumato(*request(data, out, steps=800))
    friend.join()
    assert outcome.code == 128 + number
    assert outcome.err == "Stopped. What was charged stays charged; the same command resumes.\n"
    nothing_half_written(tmp_path)
    before = (lab / "ledger.jsonl").read_bytes()
    assert sfumato(*request(data, out, steps=800)).code == 0
    assert (lab / "ledger.jsonl").read_bytes() == before
    assert drawn(lab) == DRAWS


# H. Ledger, tape and bundle.


def chained(records: list[dict]) -> bytes:
    """A ledger whose hash chain holds, as someone who wants to deceive would write it."""
    written, previous = b"", "0" * 64
    for record in records:
        body = json.dumps({**record, "previous": previous}, sort_keys=True)
        previous = hashlib.sha256(body.encode()).hexdigest()
        written += f"{previous} {body}\n".encode()
    return written


def rewritten(number: int, **fields: object) -> Change:
    """One record of the ledger says something else, and the chain is mended."""

    def change(lab: Path) -> None:
        records = [content(line) for line in (lab / "ledger.jsonl").read_bytes().splitlines()]
        records[number].update(fields)
        (lab / "ledger.jsonl").write_bytes(chained(records))

    return change


def lines(order: Callable[[list[bytes]], list[bytes]]) -> Change:
    """Lines of the ledger dropped, doubled or moved."""

    def change(lab: Path) -> None:
        path = lab / "ledger.jsonl"
        path.write_bytes(b"".join(order(path.read_bytes().splitlines(keepends=True))))

    return change


def appended(more: bytes) -> Change:
    return lines(lambda all_: [*all_, more])


def linked(lab: Path) -> None:
    (lab / "ledger.jsonl").rename(lab / "other.jsonl")
    (lab / "ledger.jsonl").symlink_to(lab / "other.jsonl")


def a_folder(lab: Path) -> None:
    (lab / "ledger.jsonl").unlink()
    (lab / "ledger.jsonl").mkdir()


OPEN, CHARGE, FIRST_MARK = 0, 5, 6  # places in the ledger of a finished run; four assumptions lie between
WITHOUT_NOISE = {"kind": "gaussian-sum", "rounds": 1, "noise_multiplier": 0.0, "sampling": 1.0}
LOUDER = {"kind": "gaussian-sum", "rounds": 1, "noise_multiplier": 50.0, "sampling": 1.0}

LEDGERS: dict[str, tuple[Change, int, str]] = {
    "missing": (lambda lab: (lab / "ledger.jsonl").unlink(), 6, "older than the answers"),
    "empty": (lambda lab: (lab / "ledger.jsonl").write_bytes(b""), 6, "older than the answers"),
    "only opened": (lines(lambda all_: all_[:1]), 6, "older than the answers"),
    "rolled back to the charge": (lines(lambda all_: all_[: CHARGE + 1]), 6, "older than the answers"),
    "a record deleted": (lines(lambda all_: all_[:3] + all_[4:]), 6, "hash chain"),
    "the opening deleted": (lines(lambda all_: all_[1:]), 6, "hash chain"),
    "a mark deleted in the middle": (lines(lambda all_: all_[:8] + all_[9:]), 6, "hash chain"),
    "two records changed places": (lines(lambda all_: [*all_[:7], all_[8], all_[7], *all_[9:]]), 6, "hash chain"),
    "a record twice": (lines(lambda all_: [*all_, all_[-1]]), 6, "hash chain"),
    "twice in a row": (lines(lambda all_: all_ + all_), 6, "hash chain"),
    "of another budget": (rewritten(OPEN, epsilon="2.0"), 2, "Expected the budget of the run"),
    "of another delta": (rewritten(OPEN, delta=1e-6), 2, "Expected the budget of the run"),
    "of another version": (rewritten(OPEN, version=2), 6, "version"),
    "with a record of unknown kind": (rewritten(CHARGE, record="refund"), 6, "damaged"),
    "with more noise than was drawn": (rewritten(CHARGE, mechanism=LOUDER), 2, "Expected the resumed run"),
    "with a charge without noise": (rewritten(CHARGE, mechanism=WITHOUT_NOISE), 2, "Expected the resumed run"),
    "with a mechanism of unknown kind": (rewritten(CHARGE, mechanism={"kind": "laplace"}), 6, "damaged"),
    "with a mechanism that is a list": (rewritten(CHARGE, mechanism=[1]), 6, "damaged"),
    "with noise as text": (rewritten(CHARGE, mechanism={**LOUDER, "noise_multiplier": "9"}), 6, "damaged"),
    "with another purpose": (rewritten(CHARGE, purpose="class sizes"), 2, "Expected the resumed run"),
    "with a mark of no charge": (rewritten(FIRST_MARK, charge=7), 6, "damaged"),
    "with a mark in words": (rewritten(FIRST_MARK, draws="many"), 6, "damaged"),
    "with a line that is no record": (appended(b"[]\n"), 6, "damaged"),
    "with an empty line": (appended(b"\n"), 6, "damaged"),
    "with a NUL": (appended(b"\0\n"), 6, "damaged"),
    "with a huge line": (appended(b"x" * 20_000_000 + b"\n"), 6, "damaged"),
    "with a deep line": (appended(b"0" * 64 + b" " + b"[" * 100_000 + b"\n"), 6, "damaged"),
    "a link": (linked, 5, "The ledger cannot be opened"),
    "a folder": (a_folder, 5, "The ledger cannot be opened"),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_ledger(name: str, stopped: Path, lab: Path) -> None:
    change, code, needle = LEDGERS[name]
    change(lab)
    outcome = resumed(stopped, lab)
    refused(outcome, code, needle)
    refused_or_honest(outcome, stopped, lab)
    again = resumed(stopped, lab)
    assert again.code == code, "a refusal is not healed by asking twice"


@pytest.mark.parametrize("name", ["a mark of the last charge from the end", "a mark taken back", "half a mark"])
def test_ledger_with_a_mark_that_still_counts(name: str, stopped: Path, lab: Path) -> None:
    fields = {"a mark of the last charge from the end": {"charge": -1}, "a mark taken back": {"draws": -5}}
    rewritten(FIRST_MARK, **fields.get(name, {"draws": 0.5}))(lab)
    refused_or_honest(resumed(stopped, lab), stopped, lab)


def test_ledger_with_a_statement_that_is_no_text(stopped: Path, lab: Path) -> None:
    rewritten(2, statement=[3])(lab)
    refused_or_honest(resumed(stopped, lab), stopped, lab)


@pytest.mark.parametrize("marks", range(1, DRAWS + 1))
def test_ledger_rolled_back_to_an_older_copy(marks: int, stopped: Path, lab: Path) -> None:
    lines(lambda all_: all_[: FIRST_MARK + marks])(lab)
    refused_or_honest(resumed(stopped, lab), stopped, lab)


def truncated(stopped: Path, tmp_path: Path, sizes: range) -> None:
    whole = (stopped / "r.lab" / "ledger.jsonl").read_bytes()
    for size in sizes:
        here = tmp_path / str(size)
        lab = Path(shutil.copytree(stopped / "r.lab", here / "r.lab"))
        (lab / "ledger.jsonl").write_bytes(whole[:size])
        refused_or_honest(resumed(stopped, lab), stopped, lab)
        shutil.rmtree(here)


def first_mark(stopped: Path) -> int:
    """Where the first mark begins, in bytes."""
    return len(b"".join((stopped / "r.lab" / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:FIRST_MARK]))


@pytest.mark.slow
def test_ledger_truncated_at_every_50th_byte_before_the_marks(stopped: Path, tmp_path: Path) -> None:
    truncated(stopped, tmp_path, range(0, first_mark(stopped), 50))


@pytest.mark.slow
def test_ledger_truncated_at_every_50th_byte_of_the_marks(stopped: Path, tmp_path: Path) -> None:
    truncated(stopped, tmp_path, range(first_mark(stopped), (stopped / "r.lab" / "ledger.jsonl").stat().st_size, 50))


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_ledger_with_a_flipped_bit(bit: int, stopped: Path, lab: Path) -> None:
    whole = (lab / "ledger.jsonl").read_bytes()
    for place in range(bit, len(whole) - 1, 197):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << bit
        (lab / "ledger.jsonl").write_bytes(spoilt)
        outcome = resumed(stopped, lab)
        assert outcome.code == 6, (place, outcome)
        assert (lab / "ledger.jsonl").read_bytes() == spoilt, "evidence was changed"
        refused_or_honest(outcome, stopped, lab)


def test_ledger_without_its_last_line_end(stopped: Path, lab: Path) -> None:
    (lab / "ledger.jsonl").write_bytes((lab / "ledger.jsonl").read_bytes()[:-1])
    outcome = resumed(stopped, lab)
    assert outcome.code == 0, outcome.err
    refused_or_honest(outcome, stopped, lab)


def answer(make: Callable[[bytes], bytes]) -> Change:
    """The one recorded answer, with other bytes."""

    def change(lab: Path) -> None:
        path = lab / "tape" / "0000-00000000.npz"
        path.write_bytes(make(path.read_bytes()))

    return change


def other_answer(**arrays: object) -> Change:
    def change(lab: Path) -> None:
        with np.load(lab / "tape" / "0000-00000000.npz") as packed:
            whole = dict(packed)
        np.savez(lab / "tape" / "0000-00000000.npz", **{**whole, **arrays})

    return change


def no_tape(lab: Path) -> None:
    shutil.rmtree(lab / "tape")
    (lab / "tape").write_text("")


def renamed(name: str) -> Change:
    return lambda lab: (lab / "tape" / "0000-00000000.npz").rename(lab / "tape" / name)


TAPES: dict[str, tuple[Change, int, str]] = {
    "a flipped bit": (answer(lambda b: b[:400] + bytes([b[400] ^ 1]) + b[401:]), 6, "damaged"),
    "of another shape": (other_answer(total=np.zeros(3, np.int64)), 6, "another size"),
    "of floats": (other_answer(total=np.zeros(123)), 6, "damaged"),
    "of several draws": (other_answer(draws=np.zeros(3)), 6, "damaged"),
    "pickled": (other_answer(total=np.array([{}], dtype=object)), 6, "damaged"),
    "truncated": (answer(lambda b: b[:500]), 6, "damaged"),
    "text": (answer(lambda b: b"hello"), 6, "damaged"),
    "deleted": (lambda lab: (lab / "tape" / "0000-00000000.npz").unlink(), 4, "paid for"),
    "a file for a folder": (no_tape, 5, "tape"),
}


@pytest.mark.parametrize("name", TAPES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy leaves a broken file open
def test_tape(name: str, stopped: Path, lab: Path) -> None:
    change, code, needle = TAPES[name]
    change(lab)
    outcome = resumed(stopped, lab)
    refused(outcome, code, needle)
    refused_or_honest(outcome, stopped, lab)


CARELESS_TAPES: dict[str, Change] = {
    "empty": answer(lambda b: b""),
    "of no draws": other_answer(draws=np.int64(0)),
    "of negative draws": other_answer(draws=np.int64(-1)),
    "of more draws than were paid": other_answer(draws=np.int64(100)),
    "of a strange name": renamed("a-b.npz"),
    "of a longer name": renamed("0-1-2.npz"),
}


@pytest.mark.parametrize("name", CARELESS_TAPES)
def test_tape_that_must_be_read_with_care(name: str, stopped: Path, lab: Path) -> None:
    CARELESS_TAPES[name](lab)
    refused(resumed(stopped, lab), 6, "")


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"{}", b"null"])
def test_job_file_damaged(raw: bytes, stopped: Path, lab: Path) -> None:
    (lab / "run.json").write_bytes(raw)
    refused(resumed(stopped, lab), 2, "Expected the same job")


def test_job_file_missing_is_covered_by_the_ledger(stopped: Path, lab: Path) -> None:
    (lab / "run.json").unlink()
    refused(resumed(stopped, lab, "--epsilon=2"), 2, "Expected the budget of the run")


def smaller_claim(release: Path) -> None:
    path = release / "certificate.json"
    told = json.loads(path.read_text())
    told["guarantee"]["epsilon"] /= 10
    path.write_text(json.dumps(told))


def mended_sums(release: Path) -> None:
    smaller_claim(release)
    name = "certificate.json"
    rows = (release / "SHA256SUMS").read_text().splitlines()
    new = f"{hashlib.sha256((release / name).read_bytes()).hexdigest()}  {name}"
    (release / "SHA256SUMS").write_text("".join(f"{new if r.endswith(name) else r}\n" for r in rows))


BUNDLES: dict[str, Change] = {
    "a smaller epsilon": smaller_claim,
    "a smaller epsilon with sums to match": mended_sums,
    "an extra file": lambda r: (r / "notes.txt").write_text("hello"),
    "an extra folder with a file": lambda r: a_full_folder(r),
    "a lab inside": lambda r: ((r / "r.lab").mkdir(), (r / "r.lab" / "PRIVATE").write_text("x")),
    "a link": lambda r: (r / "link").symlink_to("/etc/passwd"),
    "a pipe": lambda r: os.mkfifo(r / "pipe"),
    "no certificate": lambda r: (r / "certificate.json").unlink(),
    "a certificate that is no JSON": lambda r: (r / "certificate.json").write_text("{"),
    "no sums": lambda r: (r / "SHA256SUMS").unlink(),
    "no images": lambda r: shutil.rmtree(r / "data"),
    "half of the images": lambda r: os.truncate(r / "data" / "train-00000-of-00001.parquet", 1000),
    "nothing at all": lambda r: (shutil.rmtree(r), r.mkdir()),
    "other things": lambda r: (shutil.rmtree(r), r.mkdir(), (r / "holiday.txt").write_text("sun")),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_bundle(name: str, stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    BUNDLES[name](release)
    outcome = sfumato("verify", release)
    assert outcome.code == 6, outcome.out
    assert outcome.out.startswith("FAILED")
    assert "Traceback" not in outcome.out + outcome.err
    told = sfumato("verify", release, "--json")
    assert told.code == 6
    assert json.loads(told.out)["ok"] is False
    assert outcome.seconds < 10


def test_evaluate_of_a_tampered_release(stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    smaller_claim(release)
    real = ("--real", stopped / "tiny.npz", "--classes", "a,b,c")
    refused(sfumato("evaluate", release, *real, "--metric", "nearest"), 6, "differs from its sum")
    assert left_in(tmp_path) == ["r"]


EVALUATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "other classes": (("--classes", "x,y,z"), "with the released classes"),
    "another size": (("--classes", "a,b,c", "--size", "4"), "Expected real images of shape (1, 8, 8)"),
    "an unknown metric": (("--classes", "a,b,c", "--metric", "fidd"), "got 'fidd'"),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluate(name: str, stopped: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(stopped / "whole", tmp_path / "r"))
    more, needle = EVALUATIONS[name]
    refused(sfumato("evaluate", release, "--real", stopped / "tiny.npz", *more), 2, needle)
    assert left_in(tmp_path) == ["r"]


def test_there_are_enough_cases() -> None:
    tables = (PARAMETERS, COMMANDS, MECHANISMS, CHANGED, TARGETS, DISK_FULL, LEDGERS, TAPES, CARELESS_TAPES, BUNDLES)
    assert sum(map(len, tables)) >= 150
