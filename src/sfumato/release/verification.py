"""Verify a release for an auditor who has its folder and nothing else: no private data, no torch, no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import UsageError
from sfumato.release import layout
from sfumato.release.certificate import Certificate, read_certificate
from sfumato.release.claim import check_claim
from sfumato.release.contents import attempt, check_files, check_pictures, check_table
from sfumato.release.verdict import Check, Verdict

_NEEDS_CERTIFICATE = ("card", "preview", "columns", "rows", "level", "noise", "epsilon")


def verify(folder: Path | str) -> Verdict:
    """Ask every question of a release; one that fails never keeps the others from being asked."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError("Expected a release folder, got none.", where=path, fix="check the path")
    checks = check_files(path)
    found: list[Certificate] = []
    checks.append(attempt("certificate", lambda: _certificate(path, found)))
    if not found:
        unread = "not checked, because the certificate cannot be read"
        return Verdict(path, (*checks, *(Check(name, False, unread) for name in _NEEDS_CERTIFICATE)))
    certificate = found[0]
    checks += check_pictures(path, certificate)
    checks += check_table(path, certificate)
    checks += check_claim(certificate)
    return Verdict(path, tuple(checks), _facts(certificate))


def _certificate(path: Path, found: list[Certificate]) -> str | list[str]:
    found.append(read_certificate(path))
    if (path / layout.CERTIFICATE).read_bytes() != found[0].to_json().encode():
        return ["certificate.json is not written in its one canonical form"]
    return f"{found[0].format}, every field known"


def _facts(certificate: Certificate) -> dict[str, Any]:
    guarantee = certificate.guarantee
    count = len(certificate.mechanisms)
    rounds = sum(m.rounds for m in certificate.mechanisms)
    return {
        "level": guarantee.level,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "epsilon_rdp": guarantee.epsilon_rdp,
        "adjacency": guarantee.adjacency,
        "unit": guarantee.unit,
        "method": certificate.method.name,
        "images": certificate.samples.count,
        "images_for_transfer": certificate.samples.transfer,
        "questions": f"{count} mechanism{'s' if count != 1 else ''} with {rounds:,} round{'s' if rounds != 1 else ''}",
        "assumptions": list(certificate.assumptions),
    }
