"""Write docs/commands.md from the code itself, so that it cannot go stale. Run: make docs"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from typer.testing import CliRunner

from sfumato import contracts
from sfumato.cli import application, commands

TARGET = Path(__file__).parent / "commands.md"
HEAD = "# Commands, methods, metrics\n\nWritten by `make docs` from the code; do not edit.\n"


def text() -> str:
    runner, app, parts = CliRunner(), application(), [HEAD]
    for command in (entry.name for entry in commands()):
        shown = runner.invoke(
            app, [command, "--help"], prog_name="sfumato", env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
        )
        body = "\n".join(line.rstrip() for line in shown.output.splitlines()).strip()
        parts.append(f"## sfumato {command}\n\n```\n{body}\n```\n")
    for kind in ("methods", "metrics", "attacks", "data"):
        rows = [f"| `{name}` | {sentence} |" for name, sentence in contracts.names(kind).items()]  # type: ignore[arg-type]
        parts.append("\n".join([f"## {kind.capitalize()}\n", "| name | what |", "|---|---|", *rows, ""]))
    for name in contracts.names("methods"):
        method = contracts.find("methods", name)
        rows = [f"| `{f.name}` | `{f.default}` |" for f in fields(method)]
        parts.append(
            "\n".join([f"## Settings of {name} (`--set name=value`)\n", "| name | default |", "|---|---|", *rows, ""])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(text(), "utf-8")
    print(f"wrote {TARGET}")
