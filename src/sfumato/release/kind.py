"""Which kind of release is in a folder: images without certificate, or what its certificate says by its format."""

from __future__ import annotations

from pathlib import Path

from sfumato.errors import UsageError
from sfumato.release import layout
from sfumato.release.certificate import read_certificate
from sfumato.values import ReleaseKind


def release_kind(folder: Path | str) -> ReleaseKind:
    """Images, a model, or images with a hidden attribute; that the folder is unchanged is for its reader to check."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    return "hidden-images" if layout.holds_hidden_images(path) else read_certificate(path).kind
