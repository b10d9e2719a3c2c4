"""Which kind of release is in a folder: its certificate says it, in the name of its format."""

from __future__ import annotations

import json
from pathlib import Path

from sfumato.errors import UsageError, VerificationFailed
from sfumato.release import layout
from sfumato.release.certificate import FORMAT, LARGEST
from sfumato.values import ReleaseKind

MODEL_FORMAT = "sfumato-model/1"
_KINDS: dict[str, ReleaseKind] = {FORMAT: "images", MODEL_FORMAT: "model"}


def release_kind(folder: Path | str) -> ReleaseKind:
    """Images or a model; nothing else of the certificate is read, so its reader must still check all of it."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    certificate = path / layout.CERTIFICATE
    try:
        stated = json.loads(layout.read_regular(certificate, most=LARGEST))["format"]
        return _KINDS[stated]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise VerificationFailed(
            f"Expected a certificate of the format {' or '.join(_KINDS)}, got none.",
            where=certificate,
            fix="run `sfumato verify` to see all problems, or get the release again",
        ) from None
