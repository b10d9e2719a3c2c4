"""What documents say of the code: the README's tree of folders names every room of src/sfumato and no other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(readme: str, source: Path) -> list[str]:
    """Rooms that the tree leaves out, and entries of it that are not there."""
    tree = readme.partition("## What is where")[2].partition("src/sfumato/\n")[2].partition("```")[0]
    named = set(re.findall(r"^  (\w+/|\w+\.py) ", tree, re.MULTILINE))
    rooms = {f"{folder.parent.name}/" for folder in source.glob("*/__init__.py")}
    modules = {file.name for file in source.glob("*.py")}
    missing = [f"README.md: the tree does not name {room}" for room in sorted(rooms - named)]
    return missing + [
        f"README.md: the tree names {name}, which is not there" for name in sorted(named - rooms - modules)
    ]


def main() -> int:
    found = problems((ROOT / "README.md").read_text("utf-8"), ROOT / "src" / "sfumato")
    print("\n".join(found) if found else "documents: the README's tree names every room")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
