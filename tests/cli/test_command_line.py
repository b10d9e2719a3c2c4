"""The command line as a user meets it: help, machine output, the happy path and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from release.making import make_certificate
from sfumato.data import load
from sfumato.release import write_release

from commands import COMMAND, Outcome, process, request, sfumato, tiny

COMMANDS = (
    "release",
    "resample",
    "plan",
    "verify",
    "evaluate",
    "attack",
    "student",
    "select",
    "audit",
    "selfcheck",
    "run",
    "status",
    "report",
    "list",
    "doctor",
)
RECIPE = Path(__file__).parents[2] / "recipes" / "dp_imgsyn_figure5.toml"
HEAVY = ("torch", "scipy", "pyarrow", "numpy", "sklearn", "dp_accounting", "PIL")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Outcome]:
    """A data set, its release, and what the command said."""
    folder = tmp_path_factory.mktemp("made")
    data = tiny(folder)
    return data, folder / "r", sfumato(*request(data, folder / "r"))


@pytest.mark.parametrize("command", [(), *((c,) for c in COMMANDS)], ids=lambda c: c[0] if c else "sfumato")
def test_help_has_an_example_and_loads_nothing_heavy(command: tuple[str, ...]) -> None:
    loaded = "import sys, atexit; atexit.register(lambda: print('LOADED', *sys.modules, file=sys.stderr)); "
    asked = [sys.executable, "-c", loaded + COMMAND[-1], *command, "--help"]
    started = time.monotonic()
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 5, "an import crept in (0.3 s on a machine that is idle)"
    assert "Usage:" in done.stdout
    assert not command or f"sfumato {command[0]}" in done.stdout.split("Example:")[1]
    modules = done.stderr.split("LOADED", 1)[1].split()
    assert "typer" in modules
    assert not [name for name in HEAVY if name in modules]


def test_help_names_every_command() -> None:
    said = sfumato("--help").out
    assert all(f" {command} " in said for command in COMMANDS)


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


def test_plan_touches_nothing(made: tuple[Path, Path, Outcome]) -> None:
    before = sorted(made[0].parent.iterdir())
    outcome = sfumato("plan", made[0], "--classes", "a,b,c", "--epsilon", "8")
    assert outcome.code == 0
    for words in ("90 records, 1 x 8 x 8, 3 classes", "noise multiplier", "of 8 at delta 1e-05", "takes   about"):
        assert words in outcome.out
    assert sorted(made[0].parent.iterdir()) == before


def test_verify_says_yes(made: tuple[Path, Path, Outcome]) -> None:
    outcome = sfumato("verify", made[1])
    assert outcome.code == 0, outcome.out
    assert outcome.out.startswith("VERIFIED")


def test_verify_says_no_with_exit_6(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato("verify", tmp_path)
    assert outcome.code == 6
    assert outcome.out.startswith("FAILED")


def test_evaluate_writes_to_the_lab_only(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    before = sorted(release.rglob("*"))
    outcome = sfumato("evaluate", release, "--real", data, "--classes", "a,b,c", "--metric", "nearest")
    assert outcome.code == 0, outcome.err
    assert "nearest" in outcome.out
    assert "not for publication" in outcome.out
    assert sorted(release.rglob("*")) == before
    lab = release.with_name("r.lab")
    assert json.loads((lab / "scores.json").read_text())["scores"][0]["score"] == "nearest"
    assert (lab / "scores.md").read_text().startswith("PRIVATE")
    page = (lab / "scores.html").read_text()
    assert "PRIVATE" in page
    assert "http" not in page.replace("http-equiv", "")  # one file, nothing from elsewhere


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("methods", "dp-merf"), ("metrics", "nearest"), ("attacks", "nearest-neighbour"), ("datasets", "digits")],
)
def test_list_shows_what_there_is(kind: str, expected: str) -> None:
    outcome = sfumato("list", kind)
    assert outcome.code == 0
    assert expected in outcome.out
    assert expected in json.loads(sfumato("list", kind, "--json").out)


def test_doctor_finds_fault_if_and_only_if_it_exits_with_5() -> None:
    outcome = sfumato("doctor")
    assert outcome.code == (5 if "BAD" in outcome.out else 0)
    assert "torch" in outcome.out


def test_doctor_works_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc, where not even root can write")
    monkeypatch.chdir("/proc")
    outcome = sfumato("doctor", "--json")
    assert outcome.code == 5
    assert {f["name"]: f["ok"] for f in json.loads(outcome.out)}["locks"] is False


def test_json_of_every_command_parses(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    data, release, _ = made
    reading = ("--classes", "a,b,c", "--json")
    train = load("digits")
    copies = write_release(tmp_path / "copies", train, make_certificate(train))
    documents = {
        "release": request(data, tmp_path / "r", "--count", "40", "--json"),
        "resample": ("resample", release, "--out", tmp_path / "again", "--json"),
        "plan": ("plan", data, "--epsilon", "8", *reading),
        "verify": ("verify", release, "--json"),
        "evaluate": ("evaluate", release, "--real", data, "--metric", "nearest", *reading),
        "attack": ("attack", copies, "--real", "digits", "--attack", "nearest-neighbour", "--json"),
        "audit": ("audit", "--method", "dp-merf", "--json"),
        "select": ("select", tmp_path / "r", "--real", data, "--epsilon", "1", *reading),
        "selfcheck": ("selfcheck", "--json"),
        "student": ("student", tmp_path / "r", "--real", data, "--seeds", "1", *reading),
        "run": ("run", RECIPE, "--dry-run", "--json"),
        "status": ("status", tmp_path, "--json"),
        "report": ("report", release, "--public", "--out", tmp_path / "page.html", "--json"),
        "list": ("list", "metrics", "--json"),
        "doctor": ("doctor", "--json"),
    }
    assert set(documents) == set(COMMANDS)
    read = {name: json.loads(sfumato(*arguments).out) for name, arguments in documents.items()}
    assert 0 < read["release"]["epsilon"] <= 8
    assert 0 < read["resample"]["epsilon"] <= 8
    assert 0 < read["plan"]["epsilon"] <= 8
    assert read["verify"]["ok"] is True
    assert read["evaluate"]["lab"] is True
    assert read["student"]["lab"] is True
    assert read["select"]["lab"] is True
    assert read["attack"]["scores"][0]["details"]["above_claim"] is True
    for name in ("audit", "selfcheck"):
        assert all(finding["passed"] for finding in read[name]), read[name]
    assert read["run"] == read["status"] == []  # the toy asks nothing of anyone
    assert "<html" in Path(read["report"]["open"]).read_text("utf-8")
    assert {"name", "ok", "detail"} == set(read["doctor"][0])


def test_an_attack_that_shows_too_much_is_an_alarm(tmp_path: Path) -> None:
    train = load("digits")
    copies = write_release(tmp_path / "copies", train, make_certificate(train))
    outcome = sfumato("attack", copies, "--real", "digits", "--attack", "nearest-neighbour")
    assert outcome.code == 6
    assert "ALARM: attack-nearest-neighbour, near-duplicates" in outcome.err
    assert "Do not publish" in (tmp_path / "copies.lab" / "scores.html").read_text()


def test_an_attack_needs_records_that_were_not_trained_on(made: tuple[Path, Path, Outcome]) -> None:
    data, release, _ = made
    outcome = sfumato("attack", release, "--real", data, "--classes", "a,b,c")
    assert outcome.code == 2
    assert "test split" in outcome.err


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
