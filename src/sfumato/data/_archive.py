"""A zip archive of untrusted files, read member by member and never extracted."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sfumato.data._decode import LARGEST_FILE, Unreadable
from sfumato.data._tree import MOST_FILES, hidden
from sfumato.errors import DataError, printable

MOST_BYTES = 200 * 2**30  # all members together, uncompressed
LARGEST_RATIO = 200  # uncompressed to compressed; images hardly compress, decompression bombs do
_SMALL = 2**20  # bytes up to which the ratio is not checked

_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")


class ZipTree:
    """A zip archive; refused as a whole if any member is unsafe."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise DataError(
                f"Expected a zip archive, got a file that cannot be read as one ({error}).",
                where=path,
                fix="download or pack the archive again",
            ) from error
        members = self._zip.infolist()
        _check_total(members, path)
        self._members: dict[str, zipfile.ZipInfo] = {}
        self._folders: dict[str, set[str]] = {"": set()}
        self._files: dict[str, list[str]] = {}
        for member in members:
            _check_member(member, path, known=self._members)
            self._add(member)

    def folders(self, under: str = "") -> list[str]:
        return sorted(name for name in self._folders.get(under, ()) if not hidden(name))

    def files(self, under: str = "") -> list[str]:
        return sorted(name for name in self._files.get(under, ()) if not hidden(name))

    def walk(self) -> Iterator[str]:
        yield from (name for name in sorted(self._members) if not any(map(hidden, name.split("/"))))

    def open(self, name: str) -> BinaryIO:
        member = self._members.get(name)
        if member is None:
            raise Unreadable("the file is missing")
        if member.file_size > LARGEST_FILE:
            raise Unreadable(f"{member.file_size // 2**20} MB is more than {LARGEST_FILE // 2**20} MB")
        try:
            return io.BytesIO(self._zip.read(member))
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise Unreadable("damaged inside the archive") from error

    def _add(self, member: zipfile.ZipInfo) -> None:
        path = PurePosixPath(member.filename)
        folder = path if member.is_dir() else path.parent
        while folder.name:
            above = "" if folder.parent == PurePosixPath(".") else str(folder.parent)
            self._folders.setdefault(str(folder), set())
            self._folders.setdefault(above, set()).add(folder.name)
            folder = folder.parent
        if not member.is_dir():
            self._members[str(path)] = member
            self._files.setdefault("" if path.parent == PurePosixPath(".") else str(path.parent), []).append(path.name)


def _check_total(members: list[zipfile.ZipInfo], path: Path) -> None:
    size, packed = sum(m.file_size for m in members), sum(m.compress_size for m in members)
    # Overlapping members can name the same bytes many times, so the file itself bounds what is packed.
    packed = min(packed, path.stat().st_size)
    problem = ""
    if len(members) > MOST_FILES:
        problem = f"{len(members)} members, more than {MOST_FILES}"
    elif size > MOST_BYTES:
        problem = f"{size // 2**30} GB unpacked, more than {MOST_BYTES // 2**30} GB"
    elif size > _SMALL and size > LARGEST_RATIO * packed:
        problem = f"contents {size // max(packed, 1)} times their packed size, more than {LARGEST_RATIO}"
    if problem:
        raise DataError(
            f"Expected an archive of images, got {problem}.",
            where=path,
            fix="unpack it yourself if you trust it",
        )


def _check_member(member: zipfile.ZipInfo, path: Path, *, known: dict[str, zipfile.ZipInfo]) -> None:
    name = member.orig_filename
    parts = name.split("/")
    mode = member.external_attr >> 16
    problem = ""
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or ":" in parts[0]:
        problem = "a path that leaves the archive"
    elif mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        problem = "a link or a special file"
    elif member.flag_bits & 1:
        problem = "an encrypted file"
    elif name.casefold().endswith(_ARCHIVES):
        problem = "an archive inside the archive"
    elif str(PurePosixPath(name)) in known:
        problem = "the same name twice"
    elif member.file_size > _SMALL and member.file_size > LARGEST_RATIO * max(member.compress_size, 1):
        problem = f"a file more than {LARGEST_RATIO} times its packed size"
    if problem:
        raise DataError(
            f"Expected plain files in the archive, got {problem}: {printable(name)[:200]}.",
            where=path,
            fix="pack the images again, without it",
        )
