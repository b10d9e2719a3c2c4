"""The lab: the private side on disk, beside the release and never inside it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sfumato.errors import EnvironmentProblem, UsageError, printable
from sfumato.files import write_whole
from sfumato.values import Source

NOTICE = "PRIVATE - DO NOT SHARE\nThis folder was made from private data outside the ledger's guarantee.\n"


def _take(lock: int) -> None:
    """Take the lock; retry for 0.2 s, because `status` holds it for an instant to see whether a run does."""
    for attempt in range(10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if attempt == 9:
                raise
            time.sleep(0.02)


def content_of(where: str) -> str:
    """The same for the same data, wherever it lies: a digest of a file, or of the names and sizes of those in a folder.

    Made from private files without noise, so it is lab material.
    """
    path, seen = Path(where), hashlib.sha256()
    if not path.exists():
        return f"sfumato's {where}"
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    for inner in sorted(p for p in path.rglob("*") if p.is_file()):
        seen.update(f"{inner.relative_to(path)} {inner.stat().st_size}\n".encode())
    return seen.hexdigest()


class Lab:
    """A folder `<release>.lab` that one run holds at a time; only its owner can read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def beside(cls, release: Path) -> Self:
        return cls(release.with_name(release.name + ".lab"))

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._check_owner()
            (self.folder / "PRIVATE").write_text(NOTICE, "utf-8")
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            _take(self._lock)
        except BlockingIOError as error:
            raise EnvironmentProblem(
                "Another run is working in this lab folder.",
                where=self.folder,
                fix="wait for it, or choose another --out",
            ) from error
        except OSError as error:
            raise EnvironmentProblem(
                f"The lab folder cannot be used ({error.strerror}).",
                where=self.folder,
                fix="check permissions and free space there, or choose another --out",
            ) from error
        return self

    def _check_owner(self) -> None:
        """A lab folder that was there before may be a link, another user's, or open to all."""
        status = self.folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise EnvironmentProblem(
                "Expected a lab folder of our own, got a link or another user's folder.",
                where=self.folder,
                fix="remove it, or choose another --out",
            )
        if stat.S_IMODE(status.st_mode) != 0o700:
            self.folder.chmod(0o700)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def remember(self, identity: dict[str, Any]) -> None:
        """Record the identity of this run; a run that resumes must have the same."""
        path, text = self.folder / "run.json", json.dumps(identity, indent=2, sort_keys=True, default=str)
        if path.exists():
            if path.read_bytes() != text.encode():
                raise UsageError(
                    "Expected the same job as the run that was started here, got another.",
                    where=path,
                    fix="run the old command again to resume it, or choose another --out",
                )
            return
        self.write("run.json", text)

    def forget(self) -> None:
        """Remove the identity of a run that charged nothing, so that a corrected run may start here."""
        for name in ("run.json", "ledger.jsonl"):
            (self.folder / name).unlink(missing_ok=True)
        others = [path for path in self.folder.iterdir() if path.name not in ("lock", "PRIVATE")]
        if not any(path.is_file() or any(path.iterdir()) for path in others):
            # Nothing else is in the lab folder, so it is removed, too.
            shutil.rmtree(self.folder)

    def write(self, name: str, content: str | bytes) -> Path:
        """A lab file, whole or not at all."""
        path = self.folder / name
        try:
            write_whole(path, content)
        except OSError as error:
            raise EnvironmentProblem(f"A lab file could not be written ({error.strerror}).", where=path) from error
        return path

    def note_bad_files(self, source: Source) -> None:
        """Which files were skipped; how many there were is lab material too."""
        bad = getattr(source, "bad", [])
        if bad:
            lines = [f"{printable(name)}: {printable(reason)}" for name, reason in bad]
            self.write("skipped_files.txt", NOTICE + "\n".join([f"{len(bad)} skipped", *lines, ""]))
