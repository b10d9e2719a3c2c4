"""Verify a release for an auditor who has its folder and nothing else: no private data, no torch, no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import UsageError
from sfumato.release import layout, statements
from sfumato.release.certificate import Certificate, read_certificate
from sfumato.release.claim import Claim, rounded_up
from sfumato.release.contents import attempt, check_files, check_pictures, check_table
from sfumato.release.verdict import Check, Verdict

_NEEDS_CERTIFICATE = ("card", "preview", "columns", "rows", "level", "noise", "epsilon")


def verify(folder: Path | str) -> Verdict:
    """Run all checks of a release; a check that fails does not stop the others."""
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
    claim = Claim(certificate)
    checks += claim.checks()
    return Verdict(path, tuple(checks), _facts(certificate, claim, all(check.ok for check in checks)))


def _certificate(path: Path, found: list[Certificate]) -> str | list[str]:
    found.append(read_certificate(path))
    if (path / layout.CERTIFICATE).read_bytes() != found[0].to_json().encode():
        return ["certificate.json is not written in its one canonical form"]
    return f"{found[0].format}, every field known"


def _facts(certificate: Certificate, claim: Claim, holds: bool) -> dict[str, Any]:
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
        "images": certificate.samples.count,
        "images_for_transfer": certificate.samples.transfer,
        "images_for_network": certificate.samples.network,
        "assumptions": statements.assumptions(
            public=certificate.public.public_data is not None, network=certificate.public.public_network is not None
        ),
    }
