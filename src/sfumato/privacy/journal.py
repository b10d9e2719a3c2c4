"""A durable, hash-chained list of records in one file, held by one process at a time.

Guarantee: `append` returns only when the record is on disk; a record that was changed, dropped or moved
is refused on reading, and a record that was only partly written, because the writer died, is reported and never
silently ignored. A journal that is opened read-only is never altered.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from sfumato.errors import EnvironmentProblem, VerificationFailed
from sfumato.files import flush_folder

_START = "0" * 64


class Journal:
    """Records as `sha256 json` lines; each contains the hash of the previous one."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._head = _START
        self._read_only = read_only
        mode = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        lock = fcntl.LOCK_SH if read_only else fcntl.LOCK_EX
        try:
            self._file = os.open(path, mode | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._file, lock | fcntl.LOCK_NB)
            flush_folder(path.parent)
        except BlockingIOError as error:
            raise EnvironmentProblem(
                "Another run is writing this ledger.", where=path, fix="wait for it to end, or choose another --out"
            ) from error
        except OSError as error:
            raise EnvironmentProblem(f"The ledger cannot be opened: {error.strerror}.", where=path) from error

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """All records, and whether the file ended in a partly written one, which is then removed (unless read-only)."""
        raw = os.pread(self._file, os.fstat(self._file).st_size, 0)
        *lines, torn = raw.split(b"\n")
        records = [self._checked(line) for line in lines]
        if torn and not self._read_only:
            os.ftruncate(self._file, len(raw) - len(torn))
        return records, bool(torn)

    def _checked(self, line: bytes) -> dict[str, Any]:
        """The record of the next line, if it continues the hash chain."""
        try:
            head, body = line.decode().split(" ", 1)
            record = json.loads(body)
            if hashlib.sha256(body.encode()).hexdigest() != head or record.pop("previous") != self._head:
                raise ValueError("its hash chain is broken")
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise self.damaged(str(error)) from error
        self._head = head
        return dict(record)

    def damaged(self, why: str) -> VerificationFailed:
        return VerificationFailed(
            f"The ledger is damaged ({why.splitlines()[0]}), so what was spent is not known.",
            where=self._path,
            fix="restore it from a backup; without it this run cannot be resumed",
        )

    def append(self, record: dict[str, Any]) -> None:
        if self._read_only:
            raise self.damaged("it holds nothing and was opened to read alone")
        body = json.dumps({**record, "previous": self._head}, sort_keys=True)
        head = hashlib.sha256(body.encode()).hexdigest()
        data = f"{head} {body}\n".encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise EnvironmentProblem(
                f"The charge could not be written to disk ({error.strerror}), so no noise was drawn for it.",
                where=self._path,
                fix="free some space and run the same command again; it resumes",
            ) from error
        self._head = head

    def close(self) -> None:
        os.close(self._file)
