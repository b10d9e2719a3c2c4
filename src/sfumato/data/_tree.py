"""A folder of untrusted files: what is in it by name, and opening only what is safe to open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from sfumato.data._decode import Unreadable

MOST_FILES = 5_000_000
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")  # how images end, read or refused
# how files end that may lie beside images and are none
BESIDE_IMAGES = (".csv", ".txt", ".md", ".json", ".html", ".pdf", ".license", ".tsv", ".xml", ".yaml", ".toml")

_SYSTEM = {"thumbs.db", "desktop.ini", "__macosx", "@eadir", "lost+found"}


def hidden(name: str) -> bool:
    """Whether a file or folder belongs to the system and not to the data."""
    return name.startswith(".") or name.casefold() in _SYSTEM


class Tree(Protocol):
    """Files under one root, by relative name with `/`; a folder or an archive."""

    @property
    def where(self) -> str: ...
    def folders(self, under: str = "") -> list[str]:
        """Names of the folders directly below, sorted."""

    def files(self, under: str = "") -> list[str]:
        """Names of everything else directly below, sorted."""

    def walk(self) -> Iterator[str]:
        """Relative names of all files, sorted within a folder."""

    def open(self, name: str) -> BinaryIO:
        """A file for reading; `Unreadable` where it is missing, not a regular file, or outside."""


class DiskTree:
    """A folder on disk; links are followed only where they stay below the root."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.where = str(root)

    def folders(self, under: str = "") -> list[str]:
        return [name for name, folder in self._entries(under) if folder]

    def files(self, under: str = "") -> list[str]:
        return [name for name, folder in self._entries(under) if not folder]

    def walk(self) -> Iterator[str]:
        for folder, inner, names in os.walk(self._root):  # links to folders are not followed, so no loops
            inner[:] = sorted(name for name in inner if not hidden(name))
            below = Path(folder).relative_to(self._root)
            yield from ((below / name).as_posix() for name in sorted(names) if not hidden(name))

    def open(self, name: str) -> BinaryIO:
        path = self._inside(self._root / name)
        if not stat.S_ISREG(path.lstat().st_mode):  # opening a FIFO would wait for ever
            raise Unreadable("not a regular file")
        # The file may be swapped between check and open: do not follow links, do not block, and check again.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(path, flags)
        except OSError as error:
            raise Unreadable(error.strerror or "cannot be opened") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Unreadable("not a regular file")
        return os.fdopen(handle, "rb")

    def _inside(self, path: Path) -> Path:
        try:
            real = path.resolve(strict=True)
        except (
            OSError,
            RuntimeError,
            ValueError,
        ) as error:  # RuntimeError: raised by Python 3.11 for a loop of links
            missing = not path.is_symlink() and isinstance(error, FileNotFoundError)
            raise Unreadable("the file is missing" if missing else "a link that leads nowhere") from error
        if not real.is_relative_to(self._root):
            raise Unreadable("a link that leads out of the folder")
        return real

    def _entries(self, under: str) -> list[tuple[str, bool]]:
        folder = self._root / under
        try:
            self._inside(folder)
            with os.scandir(folder) as found:
                return sorted((entry.name, _is_folder(entry)) for entry in found if not hidden(entry.name))
        except OSError as error:
            raise Unreadable(error.strerror or "cannot be listed") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()  # also behind a link; one that leads out is refused when it is listed
    except OSError:
        return False
