"""What every module must have: a sentence at its top, a name that says what is in it, and in the core a guarantee."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sfumato"
JUNK = {"utils", "common", "misc", "helpers", "base", "core", "manager"}
PROMISES_NOTHING = {"__init__.py", "replay.py"}  # of the core: names alone, and a tool for tests and audits


def problems(path: Path, source: Path = SOURCE) -> list[str]:
    text = path.read_text("utf-8")
    found, room = [], path.relative_to(source).parts[0]
    if not ast.get_docstring(ast.parse(text)):
        found.append(f"{path}: opens without a sentence")
    if JUNK & set(path.stem.strip("_").split("_")):
        found.append(f"{path}: a name that says nothing of what is in it")
    if room == "privacy" and path.name not in PROMISES_NOTHING and "Guarantee:" not in text:
        found.append(f"{path}: promises nothing; write its Guarantee")
    return found


def main() -> int:
    found = [p for path in sorted(SOURCE.rglob("*.py")) for p in problems(path)]
    print("\n".join(found) if found else "modules: each opens with a sentence, and the core's promise something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
