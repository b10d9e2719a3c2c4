"""Which reader reads what is at a path, or what has a name."""

from __future__ import annotations

from pathlib import Path

from sfumato.contracts import Dataset, find, names
from sfumato.data._layout import TAR
from sfumato.errors import DataError, UsageError, printable


def reader_of(where: str) -> type[Dataset]:
    """The one reader for that path or name."""
    found = {name: reader for name in names("data") if (reader := find("data", name)).recognises(where)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise UsageError(
            f"Expected one meaning of '{printable(where)}', got {len(found)}: {' and '.join(found)}.",
            fix=f"write ./{printable(where)} for the folder, or call the data set from elsewhere",
        )
    if where.casefold().endswith(TAR):
        raise DataError(
            "Expected a folder or a zip archive, got a tar archive.", where=where, fix="unpack it, and name the folder"
        )
    accepted = (
        "a folder of class folders, a folder or .zip of images with a CSV, an .npz, a folder of idx files, "
        f"a .parquet or a folder of them, or a name ({', '.join(_by_name())})"
    )
    there = "\0" not in where and (Path(where).exists() or Path(where).is_symlink())
    kind, got = (DataError, "something else") if there else (UsageError, "a path where nothing is")
    raise kind(f"Expected {accepted}; got {got}.", where=where, fix="check the path, or run `sfumato list datasets`")


def _by_name() -> list[str]:
    return [name for name in names("data") if find("data", name).recognises(name)]
