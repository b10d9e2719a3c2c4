"""What the public page of any release shows of its folder: picture, licence, and every file with its sum."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from sfumato.errors import VerificationFailed, printable
from sfumato.release import layout
from sfumato.release.verdict import Check


def template(name: str) -> Template:
    """A template in which every text passes `printable` and is escaped, whoever wrote it and wherever it stands."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    environment.filters.update(count=lambda n: f"{n:,}", plural=lambda n, word: f"{n:,} {word}{'' if n == 1 else 's'}")
    return environment.get_template(name)


def refuse_broken(release: Path, checks: Iterable[Check]) -> None:
    """Refuse a folder that fails one of these checks."""
    for check in checks:
        if not check.ok:
            raise VerificationFailed(
                f"Expected a release whose files hold together, got: {check.detail}.",
                where=release,
                fix="run `sfumato verify` to see all problems",
            )


def shown_files(release: Path) -> dict[str, Any]:
    """Of a folder that was checked: the preview, the licence, the files, and the sum of their list."""
    card = layout.read_regular(release / layout.CARD, most=1 << 20).decode("utf-8")
    picture = layout.read_regular(release / layout.PREVIEW, most=1 << 26)
    files, exported, fingerprint = _files(release)
    return {
        "preview": base64.b64encode(picture).decode(),
        "licence": _licence(card),
        "files": files,
        "exported": exported,
        "fingerprint": fingerprint,
    }


def _licence(card: str) -> str | None:
    """The line of the card that is the publisher's to fill in; None where that was not done."""
    found = re.search(r"^license: ([A-Za-z0-9.-]+)", card, re.MULTILINE)
    return None if found is None or found[1] == "unknown" else found[1]


def _files(release: Path) -> tuple[list[dict[str, str]], dict[str, Any] | None, str]:
    """Name, size and sum of every listed file, exported pictures counted together, and the sum of the list."""
    sums = layout.read_regular(release / layout.SUMS, most=1 << 28)
    rows, pictures, pictured = list[dict[str, str]](), 0, 0
    for line in sums.decode("utf-8").splitlines():
        digest, _, name = line.partition("  ")
        size = (release / name).lstat().st_size
        if layout.exported(name):
            pictures, pictured = pictures + 1, pictured + size
        else:
            rows.append({"name": name, "size": _size(size), "digest": digest})
    exported = {"count": pictures, "size": _size(pictured)} if pictures else None
    return rows, exported, hashlib.sha256(sums).hexdigest()


def _size(size: int) -> str:
    units = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
    return next((f"{size / unit:.1f} {name}" for unit, name in units if size >= unit), f"{size} bytes")
