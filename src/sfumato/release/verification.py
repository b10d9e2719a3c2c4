"""Verify a release for an auditor who has its folder and nothing else: no private data, no torch, no GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sfumato.errors import UsageError
from sfumato.release import layout, statements
from sfumato.release.certificate import AnyCertificate, Certificate, read_certificate
from sfumato.release.claim import Claim, rounded_up
from sfumato.release.contents import attempt, check_files, check_model, check_pictures
from sfumato.release.hidden_verification import verify_hidden
from sfumato.release.rows import check_table
from sfumato.release.verdict import Check, Verdict
from sfumato.values import ReleaseKind

_CONTENTS: dict[ReleaseKind, tuple[str, ...]] = {  # checks that need a certificate
    "images": ("card", "preview", "columns", "rows"),
    "model": ("card", "tensors", "weights"),
}


def verify(folder: Path | str) -> Verdict:
    """Run all checks of a release; a check that fails does not stop the others."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    if layout.holds_hidden_images(path):
        return verify_hidden(path)
    found: list[AnyCertificate] = []
    read = attempt("certificate", lambda: _certificate(path, found))
    kind = found[0].kind if found else _kind_by_name(path)
    checks = [*check_files(path, kind), read]
    if not found:
        unread = "not checked, because the certificate cannot be read"
        names = (*_CONTENTS[kind], "level", "noise", "epsilon")
        return Verdict(path, (*checks, *(Check(name, False, unread) for name in names)))
    certificate = found[0]
    if isinstance(certificate, Certificate):
        checks += check_pictures(path, certificate) + check_table(path, certificate)
    else:
        checks += check_model(path, certificate)
    claim = Claim(certificate)
    checks += claim.checks()
    return Verdict(path, tuple(checks), _facts(certificate, claim, all(check.ok for check in checks)))


def _kind_by_name(path: Path) -> ReleaseKind:
    """What a folder without a readable certificate seems to be; it fails in either case."""
    return "model" if os.path.lexists(path / layout.WEIGHTS) else "images"


def _certificate(path: Path, found: list[AnyCertificate]) -> str | list[str]:
    found.append(read_certificate(path))
    if (path / layout.CERTIFICATE).read_bytes() != found[0].to_json().encode():
        return ["certificate.json is not written in its one canonical form"]
    return f"{found[0].format}, every field known"


def _facts(certificate: AnyCertificate, claim: Claim, holds: bool) -> dict[str, Any]:
    """What was counted or checked here, and our own sentences; of a claim that does not hold, its level alone."""
    if not holds:
        return {"level": certificate.guarantee.level}
    return {
        "level": certificate.guarantee.level,
        "epsilon": claim.epsilon,
        "delta": rounded_up(certificate.guarantee.delta, 3),
        "epsilon_rdp": claim.epsilon_rdp,
        "adjacency": statements.ADJACENCY,
        "unit": statements.UNIT,
        **_held(certificate),
        "assumptions": statements.assumptions(
            public=certificate.public.public_data is not None, network=certificate.public.public_network is not None
        ),
    }


def _held(certificate: AnyCertificate) -> dict[str, Any]:
    """How much the release holds; the architecture is as stated, because only torch could build it."""
    if isinstance(certificate, Certificate):
        samples = certificate.samples
        further = {"images_for_transfer": samples.transfer, "images_for_network": samples.network}
        return {"images": samples.count, **further}
    return {"architecture": certificate.model.architecture, "parameters": certificate.model.parameters}
