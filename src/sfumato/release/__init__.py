"""Write, read and verify a release."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.release.certificate import (
        FORMAT,
        Certificate,
        Guarantee,
        Method,
        ModelCertificate,
        ModelFacts,
        NoiseSource,
        PublicFacts,
        RequestedBudget,
        Samples,
        TensorFacts,
        read_certificate,
        read_image_certificate,
        read_model_certificate,
    )
    from sfumato.release.hidden import HiddenRelease, read_hidden, write_hidden
    from sfumato.release.hidden_facts import HiddenFacts, HidingMethod, ImageFacts
    from sfumato.release.model import model_facts, read_model, write_model
    from sfumato.release.read import read_release
    from sfumato.release.verdict import Check, Verdict
    from sfumato.release.verification import verify
    from sfumato.release.write import write_release

__all__ = [
    "FORMAT",
    "Certificate",
    "Check",
    "Guarantee",
    "HiddenFacts",
    "HiddenRelease",
    "HidingMethod",
    "ImageFacts",
    "Method",
    "ModelCertificate",
    "ModelFacts",
    "NoiseSource",
    "PublicFacts",
    "RequestedBudget",
    "Samples",
    "TensorFacts",
    "Verdict",
    "model_facts",
    "read_certificate",
    "read_hidden",
    "read_image_certificate",
    "read_model",
    "read_model_certificate",
    "read_release",
    "verify",
    "write_hidden",
    "write_model",
    "write_release",
]

_HOMES = {
    "HiddenFacts": "hidden_facts",
    "HiddenRelease": "hidden",
    "HidingMethod": "hidden_facts",
    "ImageFacts": "hidden_facts",
    "read_hidden": "hidden",
    "write_hidden": "hidden",
    "model_facts": "model",
    "read_model": "model",
    "read_release": "read",
    "Check": "verdict",
    "Verdict": "verdict",
    "verify": "verification",
    "write_model": "model",
    "write_release": "write",
}


def __getattr__(name: str) -> Any:
    # pyarrow, Pillow and scipy are imported when first needed: `sfumato --help` needs none of them
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sfumato.release.{_HOMES.get(name, 'certificate')}"), name)
