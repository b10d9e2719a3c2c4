"""SHA256SUMS: the list of every file of a release, in the format of `sha256sum`."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from sfumato.errors import UsageError, VerificationFailed, printable
from sfumato.release.layout import SUMS

_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")
_LARGEST = 1 << 28  # bytes; two million exported images


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def entries(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry below a folder except plain folders, as a name with slashes; links are not followed."""
    for root, folders, files in os.walk(folder):
        for name in sorted([*files, *folders]):
            path = Path(root) / name
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                yield path.relative_to(folder).as_posix(), status


def sums_text(folder: Path) -> str:
    """The list for a folder as it stands, without the list itself."""
    names = sorted(name for name, _ in entries(folder) if name != SUMS)
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in names)


def sums_problems(folder: Path) -> list[str]:
    """How a folder differs from its list: missing, extra, changed, linked, or a malformed list."""
    found: dict[str, os.stat_result] = dict(entries(folder))
    problems = [
        f"{printable(name)} is not a regular file" for name, status in found.items() if not stat.S_ISREG(status.st_mode)
    ]
    if SUMS not in found or not stat.S_ISREG(found[SUMS].st_mode):
        return [*problems, f"{SUMS} is missing"]
    listed, bad_lines = _listed(folder)
    problems += bad_lines
    for name in sorted(found.keys() - listed.keys() - {SUMS}):
        problems.append(f"{printable(name)} is there but not listed")
    for name, stated in listed.items():
        if name not in found:
            problems.append(f"{printable(name)} is listed but missing")
        elif stat.S_ISREG(found[name].st_mode) and sha256(folder / name) != stated:
            problems.append(f"{printable(name)} differs from its sum")
    return problems


def refuse_changed(folder: Path) -> None:
    """Refuse what is no folder, and a folder that differs from its list."""
    if not folder.is_dir():
        raise UsageError("Expected a release folder, got none.", where=folder, fix="check the path")
    if problems := sums_problems(folder):
        raise VerificationFailed(
            f"Expected the files that {SUMS} lists: {problems[0]}.",
            where=folder,
            fix="run `sfumato verify` to see all problems, or get the release again",
        )


def _listed(folder: Path) -> tuple[dict[str, str], list[str]]:
    with (folder / SUMS).open("rb") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        return {}, [f"{SUMS} is larger than {_LARGEST} bytes"]
    listed: dict[str, str] = {}
    problems = []
    if not text.endswith(b"\n"):
        problems.append(f"{SUMS} does not end with a line end")
    for number, line in enumerate(text.decode("utf-8", "backslashreplace").split("\n")[:-1], start=1):
        match = _LINE.fullmatch(line)
        name = match[2] if match else ""
        if match is None or name.startswith("/") or {"", ".", ".."} & set(name.split("/")) or "\\" in name:
            problems.append(f"line {number} of {SUMS} is not a sum and a plain path")
        elif name in listed:
            problems.append(f"{printable(name)} is listed twice")
        else:
            listed[name] = match[1]
    return listed, problems
