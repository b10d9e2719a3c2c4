"""The trusted core: the only package that computes on raw private pixels or adds privacy noise."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sfumato.privacy.ledger import Budget, Charge, Ledger
from sfumato.privacy.mechanism import (
    GaussianSum,
    Mechanism,
    NoisyChoice,
    ShardedAnswers,
    ShardedSums,
    mechanism_from_dict,
)
from sfumato.privacy.noise import LATTICE_BITS, Noise, SeededNoise

if TYPE_CHECKING:
    from sfumato.privacy.accounting import calibrate, epsilon_pld, epsilon_rdp, profile
    from sfumato.privacy.gloo_crew import GlooCrew
    from sfumato.privacy.gradients.step import noisy_gradient
    from sfumato.privacy.gradients.training import Companion, Descent, descend
    from sfumato.privacy.private import PrivateImages, Query
    from sfumato.privacy.ray_crew import RayCrew
    from sfumato.privacy.recall import FinishedLedger, recalled_images
    from sfumato.privacy.replay import Recording
    from sfumato.privacy.tape import Tape
    from sfumato.privacy.teachers import TeacherModel, Teachers

__all__ = [
    "LATTICE_BITS",
    "Budget",
    "Charge",
    "Companion",
    "Descent",
    "FinishedLedger",
    "GaussianSum",
    "GlooCrew",
    "Ledger",
    "Mechanism",
    "Noise",
    "NoisyChoice",
    "PrivateImages",
    "Query",
    "RayCrew",
    "Recording",
    "SeededNoise",
    "ShardedAnswers",
    "ShardedSums",
    "Tape",
    "TeacherModel",
    "Teachers",
    "calibrate",
    "descend",
    "epsilon_pld",
    "epsilon_rdp",
    "mechanism_from_dict",
    "noisy_gradient",
    "profile",
    "recalled_images",
]

_HEAVY = {
    "Companion": "gradients.training",
    "Descent": "gradients.training",
    "FinishedLedger": "recall",
    "GlooCrew": "gloo_crew",
    "PrivateImages": "private",
    "Query": "private",
    "RayCrew": "ray_crew",
    "Recording": "replay",
    "Tape": "tape",
    "TeacherModel": "teachers",
    "Teachers": "teachers",
    "calibrate": "accounting",
    "descend": "gradients.training",
    "epsilon_pld": "accounting",
    "epsilon_rdp": "accounting",
    "noisy_gradient": "gradients.step",
    "profile": "accounting",
    "recalled_images": "recall",
}


def __getattr__(name: str) -> Any:
    # torch and dp-accounting are imported when first needed: an auditor's `verify` starts without torch
    if name in _HEAVY:
        return getattr(importlib.import_module(f"sfumato.privacy.{_HEAVY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
