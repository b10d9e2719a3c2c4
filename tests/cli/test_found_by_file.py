"""Adding a command touches one file; and every command is a function of the public API with the same defaults."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sfumato as api
from sfumato.cli import commands
from sfumato.contracts import Reading

from commands import sfumato

ADDED = '''"""sfumato greet: a command that a test has added."""

from sfumato.cli._command import command
from sfumato.cli._options import Json, ReadingOptions


@command("available", example="sfumato greet --size 8")
def greet(reading: ReadingOptions, as_json: Json = False) -> None:
    """Say how large images are."""
    print(f"size {reading.size}")
'''
WITH_IT = """
import sys
import sfumato.cli
sfumato.cli.__path__.append(sys.argv.pop(1))
sfumato.cli.main()
"""
NEEDED: dict[str, tuple[str, ...]] = {  # the least that each command must be given
    "release": ("digits", "--epsilon", "1", "--out", "r"),
    "resample": ("folder", "--out", "r"),
    "train": ("digits", "--epsilon", "1", "--out", "r"),
    "plan": ("digits", "--epsilon", "1"),
    "hide": ("digits", "--attribute", "race", "--out", "h"),
    "leak": ("folder", "--real", "digits"),
    "verify": ("folder",),
    "evaluate": ("folder", "--real", "digits"),
    "attack": ("folder", "--real", "digits"),
    "student": ("folder", "--real", "digits"),
    "select": ("folder", "--real", "digits", "--epsilon", "1"),
    "run": ("recipe.toml",),
    "report": ("folder",),
    "predict": ("folder", "images", "--out", "labels.csv"),
    "list": ("methods",),
}


def run(folder: Path, *arguments: str) -> str:
    (folder / "greet.py").write_text(ADDED)
    command = [sys.executable, "-c", WITH_IT, str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_new_file_is_a_new_command_at_the_end_of_the_help(tmp_path: Path) -> None:
    text = run(tmp_path, "--help")
    assert " greet " in text
    assert text.index(" greet ") > text.index(" doctor ")
    assert run(tmp_path, "greet", "--size", "8") == "size 8\n"


def test_each_file_is_one_command_and_each_has_its_own_place() -> None:
    folder = Path(inspect.getfile(commands)).parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert {entry.name for entry in commands()} == files
    assert len({entry.order for entry in commands()}) == len(files)


class Called(Exception):
    """Raised in place of the work of a public function."""


def called_with(monkeypatch: pytest.MonkeyPatch, function: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """What a command hands to a function of the public API."""
    signature = inspect.signature(getattr(api, function))
    seen: list[dict[str, Any]] = []

    def record(*given: Any, **named: Any) -> None:
        seen.append(dict(signature.bind(*given, **named).arguments))
        raise Called

    monkeypatch.setattr(api, function, record, raising=False)
    sfumato(*arguments)
    (found,) = seen
    return found


def same(given: Any, default: Any) -> bool:
    """Nothing chosen is written as None, as an empty tuple or as a reading without wishes."""
    nothing = (None, (), Reading())
    return given == default or (given in nothing and default in nothing) or str(given) == str(default)


CALLS = [(entry.name, function) for entry in commands() for function in entry.api]


@pytest.mark.parametrize(("name", "function"), CALLS)
def test_a_command_calls_a_public_function_with_its_own_defaults(
    name: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert function in api.__all__
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    signature = inspect.signature(getattr(api, function))
    dry = dict.fromkeys(("plan_training", "plan_hiding"), ("--dry-run",))
    more = {"write_public_page": ("--public",), **dry}.get(function, ())
    given = called_with(monkeypatch, function, (name, *NEEDED.get(name, ()), *more))
    for parameter in signature.parameters.values():
        if parameter.name in given and parameter.default is not parameter.empty:
            assert same(given[parameter.name], parameter.default), parameter.name
    if "job" in given:
        asked = {"attribute": "race"} if name == "hide" else {"epsilon": 1.0}
        assert given["job"] == type(given["job"])("digits", **asked)
