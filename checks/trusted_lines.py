"""The lines to read before trusting epsilon: counted, and compared with the number in ARCHITECTURE.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"(<!-- trusted lines -->)([0-9,]+)( lines in all)")
FILE = re.compile(r"^\| `(privacy/[a-z_/]+\.py)` \|", re.MULTILINE)


def counted(page: str) -> int:
    """The lines of the files that the page's table of the core names."""
    return sum(len((ROOT / "src" / "sfumato" / name).read_text("utf-8").splitlines()) for name in FILE.findall(page))


def main(arguments: list[str]) -> int:
    path = ROOT / "ARCHITECTURE.md"
    page = path.read_text("utf-8")
    stated, lines = MARK.search(page), counted(page)
    if stated is None:
        print("ARCHITECTURE.md: no number of trusted lines")
        return 1
    if arguments == ["--write"]:
        path.write_text(MARK.sub(rf"\g<1>{lines:,}\g<3>", page), "utf-8")
    elif stated[2] != f"{lines:,}":
        print(f"ARCHITECTURE.md states {stated[2]} trusted lines, there are {lines:,}; run it with --write")
        return 1
    print(f"trusted lines: {lines:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
