"""The size rules of the design: short functions, short files, a sentence at the top, no junk-drawer names."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "sfumato"
FILE_LINES = {"privacy": 250}  # everything else: 320
FUNCTION_LINES, FIT_LINES, COMMAND_LINES = 40, 100, 50
JUNK = {"utils", "common", "misc", "helpers", "base", "core", "manager"}


def problems(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    tree, room = ast.parse(text), path.relative_to(SOURCE).parts[0]
    found, limit = [], FILE_LINES.get(room, 320)
    if (lines := text.count("\n")) > limit:
        found.append(f"{path}: {lines} lines, at most {limit}")
    if not ast.get_docstring(tree):
        found.append(f"{path}: opens without a sentence")
    if JUNK & set(path.stem.strip("_").split("_")):
        found.append(f"{path}: a junk-drawer name")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            allowed = FIT_LINES if node.name == "fit" else COMMAND_LINES if room == "cli" else FUNCTION_LINES
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > allowed:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {allowed}")
    if room == "privacy" and path.name not in ("__init__.py", "replay.py") and "Guarantee:" not in text:
        found.append(f"{path}: promises nothing; write its Guarantee")
    return found


def main() -> int:
    found = [p for path in sorted(SOURCE.rglob("*.py")) for p in problems(path)]
    print("\n".join(found) if found else "sizes: within the design's limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
