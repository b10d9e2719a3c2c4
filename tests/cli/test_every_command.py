"""What holds for every command: help with an example that loads nothing heavy, and a test file of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.checking import left_in, refused
from sfumato.cli import commands

from commands import COMMAND, sfumato

COMMANDS = tuple(entry.name for entry in commands())
HEAVY = ("torch", "scipy", "pyarrow", "numpy", "sklearn", "dp_accounting", "PIL")


@pytest.mark.parametrize("command", [(), *((c,) for c in COMMANDS)], ids=lambda c: c[0] if c else "sfumato")
def test_help_has_an_example_and_loads_nothing_heavy(command: tuple[str, ...]) -> None:
    loaded = "import sys, atexit; atexit.register(lambda: print('LOADED', *sys.modules, file=sys.stderr)); "
    asked = [sys.executable, "-c", loaded + COMMAND[-1], *command, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    assert not command or f"sfumato {command[0]}" in done.stdout.split("Example:")[1]
    modules = done.stderr.split("LOADED", 1)[1].split()
    assert "typer" in modules
    assert not [name for name in HEAVY if name in modules]


def test_help_names_every_command() -> None:
    said = sfumato("--help").out
    assert all(f" {command} " in said for command in COMMANDS)


def test_every_command_has_a_test_file_with_json_and_bad_requests() -> None:
    for command in COMMANDS:
        text = (Path(__file__).parent / f"test_{command.replace('-', '_')}.py").read_text("utf-8")
        assert "json.loads(" in text, command
        assert "refused(" in text, command


def test_unknown_command(workdir: Path) -> None:
    refused(sfumato("publish"), 2, "publish")
    assert left_in(workdir) == []
