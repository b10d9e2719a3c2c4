"""The layout of the data at a path, from file names alone, so that exactly one reader recognises it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

Layout = Literal["folder", "table", "npz", "idx", "parquet", "celeba", "fairface", "utkface"]

_CELEBA = {"list_attr_celeba.txt", "list_eval_partition.txt"}
_FAIRFACE = {"fairface_label_train.csv", "fairface_label_val.csv"}
_UTKFACE = re.compile(r"[0-9]{1,3}_[01]_[0-4]_[0-9]{8,}\.jpg(\.chip\.jpg)?")
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


def layout(where: str) -> Layout | None:
    """The kind of data set at that path, or None."""
    path = Path(where)
    try:
        if path.is_dir():
            return _of_folder(path)
        if not path.is_file():  # nothing there, or a device that must not be opened
            return None
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    suffix = path.suffix.casefold()
    if suffix == ".zip":
        facts = path.stat()
        return "table" if _zip_has_table(path, facts.st_mtime_ns, facts.st_size) else "folder"
    return {".npz": "npz", ".parquet": "parquet"}.get(suffix)  # type: ignore[return-value]


def _of_folder(path: Path) -> Layout:
    below = list(_names(path))
    if _CELEBA & {*below, *_names(path / "Anno"), *_names(path / "Eval")}:
        return "celeba"
    if any("idx3-ubyte" in name for name in below):
        return "idx"
    if any(name.endswith(".parquet") for name in [*below, *_names(path / "data")]):
        return "parquet"
    if _FAIRFACE & set(below):
        return "fairface"
    if any(name.endswith(".csv") for name in below):
        return "table"
    if 2 * sum(_UTKFACE.fullmatch(name) is not None for name in below) > len(below):  # some of its names are broken
        return "utkface"
    return "folder"


def _names(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        yield from (entry.name.casefold() for entry in folder.iterdir() if not entry.name.startswith("."))


@lru_cache(maxsize=4)  # every reader is asked, and a large archive takes a second to list
def _zip_has_table(path: Path, _changed: int, _size: int) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False
    return any(name.casefold().endswith(".csv") and name.count("/") <= 1 for name in names)
