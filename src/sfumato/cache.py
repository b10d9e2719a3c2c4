"""The user's cache folder: downloads, and trainings on `--public` images alone, so that a killed one goes on.

It lies outside lab and ledger and outlives both, so nothing in it may depend on an answer, noisy or not.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.files import written_whole

if TYPE_CHECKING:
    from torch import Tensor

TRAININGS = "trainings"
MOST = 16  # trainings that are kept, the newest
ABANDONED = 24 * 3600.0  # seconds after which an unfinished file is that of a killed program


def cache_folder() -> Path:
    """SFUMATO_CACHE, or sfumato in the user's cache folder."""
    if own := os.environ.get("SFUMATO_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "sfumato"
    return Path("~/.cache/sfumato").expanduser()


@dataclass(frozen=True, slots=True)
class CachedTrainings:
    """Checkpoints by name, for their owner alone (`values.Checkpoints`). A cache that fails is no reason to stop.

    What others own or can write to counts as nothing: weights that they choose would go into a release.
    """

    def restore(self, name: str) -> dict[str, Tensor] | None:
        from safetensors import SafetensorError
        from safetensors.torch import load

        with suppress(OSError, SafetensorError):  # there is none, or it is damaged
            path = self._path(name)
            with path.open("rb") as file:  # the file that is looked at is the one that is read
                if not (_own(path.parent.stat()) and _own(os.fstat(file.fileno()))):
                    return None
                state = load(file.read())
            path.touch()  # what is used stays longest
            return state
        return None

    def keep(self, name: str, state: dict[str, Tensor]) -> None:
        from safetensors.torch import save

        path = self._path(name)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o700)
            with written_whole(path) as unfinished:
                unfinished.touch(mode=0o600)
                unfinished.write_bytes(save({key: part.contiguous() for key, part in state.items()}))
            for file in path.parent.glob(".*.tmp-*"):
                with suppress(FileNotFoundError):  # another process is quicker
                    if file.stat().st_mtime < time.time() - ABANDONED:
                        file.unlink()
            by_age = sorted(path.parent.glob("*.safetensors"), key=lambda file: file.stat().st_mtime)
            for file in by_age[:-MOST]:
                file.unlink()

    @staticmethod
    def _path(name: str) -> Path:
        return cache_folder() / TRAININGS / f"{name}.safetensors"


def _own(found: os.stat_result) -> bool:
    """Whether it is the user's own and nobody else can write to it."""
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
