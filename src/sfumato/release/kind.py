"""Which kind of release is in a folder: its certificate says it, by its format."""

from __future__ import annotations

from pathlib import Path

from sfumato.errors import UsageError
from sfumato.release.certificate import read_certificate
from sfumato.values import ReleaseKind


def release_kind(folder: Path | str) -> ReleaseKind:
    """Images or a model; that the folder is as it was written is for its reader to check."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    return read_certificate(path).kind
