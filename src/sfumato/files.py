"""The one way to write a file: beside its place under another name, and renamed when it is whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path


def unfinished_name(path: Path) -> Path:
    """Where a file is written before it is whole; a name of this thread's own."""
    return path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident():x}")


@contextlib.contextmanager
def written_whole(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to; when the block ends it becomes `path`, and if the block fails nothing is left of it.

    With `durable`, bytes and name are on disk before the block ends, as a ledger needs it.
    """
    unfinished = unfinished_name(path)
    try:
        yield unfinished
        if durable:
            _flush(unfinished)
        unfinished.replace(path)
        if durable:
            flush_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, contents: bytes | str, *, durable: bool = False) -> None:
    with written_whole(path, durable=durable) as unfinished:
        unfinished.write_bytes(contents.encode("utf-8") if isinstance(contents, str) else contents)


def write_once(path: Path, contents: str) -> None:
    """Whole or not at all, and never instead of a file that is there: who comes second leaves the first one's."""
    unfinished = unfinished_name(path)
    try:
        unfinished.write_text(contents, "utf-8")
        with contextlib.suppress(FileExistsError):  # unlike a renaming, a link never replaces what was quicker
            os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable, as fsync does for a file's bytes."""
    _flush(folder)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
