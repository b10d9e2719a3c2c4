"""The folder of a new release: all of it appears at once under its name, or nothing does."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.errors import EnvironmentProblem, UsageError
from sfumato.files import flush_folder
from sfumato.release.layout import SUMS
from sfumato.release.sums import sums_text


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; when the block ends, it gets its list of sums and becomes `target`.

    It lies beside the target, is flushed to disk, and renamed in one step; a run that is killed leaves at most a folder
    `<name>.tmp-<pid>`, which the next one removes.
    """
    _refuse_existing(target)
    try:
        with _workplace(target) as work:
            yield work
            write_file(work / SUMS, sums_text(work).encode())
            for inside in [work, *(p for p in work.rglob("*") if p.is_dir())]:
                flush_folder(inside)
            _refuse_existing(target)
            work.rename(target)
            flush_folder(target.parent)
    except OSError as error:
        raise EnvironmentProblem(
            f"Expected to write the release, got: {error.strerror or error}. Nothing was left behind.",
            where=target,
            fix="check free space and permissions there, or choose another folder",
        ) from error


def write_file(path: Path, contents: bytes) -> None:
    """A file whose bytes are on disk."""
    with path.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise UsageError(
            "Expected a new folder for the release, got one that exists.",
            where=target,
            fix="choose another name, or remove it yourself",
        )


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """A locked folder beside the target, which is removed afterwards in every case."""
    _sweep(target)
    work = target.with_name(f"{target.name}.tmp-{os.getpid()}")
    work.mkdir()
    lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)  # after the rename there is nothing under this name
        os.close(lock)


def _sweep(target: Path) -> None:
    """Remove what killed runs left; a locked folder belongs to a run that is still going on."""
    for old in target.parent.glob(f"{_literal(target.name)}.tmp-*"):
        if not old.name.rpartition("-")[2].isdigit() or old.is_symlink() or not old.is_dir():
            continue
        lock = os.open(old, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
