"""Write docs/commands.md from the code itself, so that it cannot go stale. Run: make docs

With --check nothing is written, and it fails if the page is not what would be written now.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from typer.models import OptionInfo

from sfumato import contracts
from sfumato.cli import commands
from sfumato.cli._command import Command, options_of

TARGET = Path(__file__).parent / "commands.md"
HEAD = "# Commands, methods, metrics\n\nWritten by `make docs` from the code; do not edit.\n"


def text() -> str:
    parts = [HEAD, *map(_command, commands())]
    for kind in get_args(contracts.Kind):
        rows = [(f"`{name}`", sentence) for name, sentence in contracts.names(kind).items()]
        parts.append(f"## {kind.capitalize()}\n\n{_table(('name', 'what'), rows)}")
    for name in contracts.names("methods"):
        rows = [(f"`{field.name}`", f"`{field.default}`") for field in fields(contracts.find("methods", name))]
        parts.append(f"## Settings of {name} (`--set name=value`)\n\n{_table(('name', 'default'), rows)}")
    return "\n".join(parts)


def _command(command: Command) -> str:
    """What `--help` says, as a table."""
    rows = [_row(option) for option in options_of(command.function)]
    sentence = inspect.getdoc(command.function)
    table = _table(("argument or option", "default", "what"), rows)
    return f"## sfumato {command.name}\n\n{sentence}\n\n```\n{command.example}\n```\n\n{table}"


def _row(option: inspect.Parameter) -> tuple[str, str, str]:
    kind, described = option.annotation, None
    if get_origin(kind) is Annotated:
        kind, described = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    name = option.name.upper()
    if isinstance(described, OptionInfo):
        given = (described.default, *(described.param_decls or ()))  # typer keeps a first name as the default
        spelled = [name for name in given if isinstance(name, str) and name.startswith("--")]
        name = spelled[0] if spelled else f"--{option.name.replace('_', '-')}"
    repeatable = " (repeatable)" if get_origin(kind) is list else ""
    choices = ", ".join(f"`{choice}`" for choice in get_args(kind)) if get_origin(kind) is Literal else ""
    what = " ".join(filter(None, (described and described.help, choices and f"One of {choices}.")))
    return f"`{name}`{repeatable}", _default(option.default), what


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "needed"
    return "" if value in (None, False, "") else f"`{value}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = TARGET.read_text("utf-8") == text()
        print("docs/commands.md is what the code says" if current else "docs/commands.md is stale; run: make docs")
        return 0 if current else 1
    TARGET.write_text(text(), "utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
