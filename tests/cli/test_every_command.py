"""What holds for every command: help with an example that loads nothing heavy, and machine output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from release.making import make_certificate
from sfumato.cli import commands
from sfumato.data import load
from sfumato.release import write_release

from commands import COMMAND, Outcome, request, sfumato

COMMANDS = tuple(entry.name for entry in commands())
RECIPE = Path(__file__).parents[2] / "recipes" / "dp_imgsyn_figure5.toml"
HEAVY = ("torch", "scipy", "pyarrow", "numpy", "sklearn", "dp_accounting", "PIL")


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


@pytest.mark.slow
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
