"""What this machine has, and the known traps: versions, torch, torchvision, entropy, disk, memory, cores."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NEEDED = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "dp-accounting",
    "cryptography",
    "pillow",
    "pyarrow",
    "jinja2",
    "pydantic",
    "typer",
    "rich",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `ok` None means worth knowing, not wrong."""

    name: str
    ok: bool | None
    detail: str


def examine() -> list[Finding]:
    """Look at everything; nothing private is opened and nothing is changed."""
    return [_python(), *_packages(), _torchvision(), _entropy(), _disk(), _memory(), _locks()]


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} (3.11 or newer is needed)")


def _packages() -> list[Finding]:
    found = []
    for name in NEEDED:
        try:
            found.append(Finding(name, True, version(name)))
        except PackageNotFoundError:
            found.append(Finding(name, False, f"missing; mend it with: pip install {name}"))
    return found


def _torchvision() -> Finding:
    if importlib.util.find_spec("torchvision") is None:
        return Finding("torchvision", True, "absent, as it should be: Sfumato does not use it")
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, AttributeError) as error:
        return Finding(
            "torchvision", False, f"broken ({str(error).splitlines()[0]}); mend it: pip uninstall torchvision"
        )
    return Finding("torchvision", None, "present and not needed")


def _entropy() -> Finding:
    try:
        return Finding("entropy", len(os.urandom(32)) == 32, "the operating system gives random bytes")
    except (OSError, NotImplementedError):
        return Finding("entropy", False, "the operating system gives no random bytes: no noise can be drawn")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    return Finding("disk", free > 2, f"{free:.1f} GB free here (2 GB or more is comfortable)")


def _memory() -> Finding:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Finding("memory", gigabytes > 4, f"{gigabytes:.1f} GB, {os.cpu_count()} cores (4 GB or more is comfortable)")


def _locks() -> Finding:
    import fcntl

    try:
        file = tempfile.TemporaryFile(dir=Path.cwd())  # noqa: SIM115 - closed below
    except OSError as error:
        return Finding("locks", False, f"nothing can be written here ({error.strerror}); run in another folder")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return Finding("locks", False, "this file system has no locks; run where it has, or ledgers could mix")
    return Finding("locks", True, "files can be locked here")
