"""A finished run's answers without its data: recorded questions get their recorded answers, others are refused.

Guarantee: such a handle has no records and no noise, and nothing can be added to its ledger; a question whose answer
is not on the tape, or has another size there, is refused; nothing is charged or begun, and no file is altered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.errors import VerificationFailed
from sfumato.privacy.journal import Journal
from sfumato.privacy.ledger import Budget, Charge, Ledger
from sfumato.privacy.mechanism import Mechanism
from sfumato.privacy.noise import Noise
from sfumato.privacy.private import PrivateImages, _bind
from sfumato.privacy.tape import Tape
from sfumato.privacy.vault import Records, Vault, spec_of_features
from sfumato.values import Spec


def _unanswered() -> VerificationFailed:
    return VerificationFailed(
        "This question was not asked when the answers were recorded, and there is no data to ask now.",
        fix="use the settings of the recorded run, or make a release of its own, which costs privacy",
    )


class FinishedLedger(Ledger):
    """The charges of a finished run, to be requested again in the same order; its file is read and never altered."""

    def __init__(self, budget: Budget, path: Path) -> None:
        super().__init__(budget)
        journal = Journal(path, read_only=True)
        try:
            self._resume(journal)
        finally:
            journal.close()

    @property
    def finished(self) -> bool:
        """Whether something was paid for, and every draw of it begun."""
        return bool(self._charges) and all(self.unbegun(charge) == 0 for charge in self._charges)

    def charge(self, mechanism: Mechanism, *, purpose: str = "") -> Charge:
        if self._requested == len(self._charges):
            raise _unanswered()
        return super().charge(mechanism, purpose=purpose)

    def _append(self, record: dict[str, Any]) -> NoReturn:
        raise VerificationFailed(
            "Expected the ledger of a finished run, to which nothing is added.",
            fix="let the run finish first: its own command resumes it",
        )


class _NoNoise(Noise):
    """No randomness: only an answer that was not recorded would need any, and it is refused."""

    def _bits(self, count: int) -> NDArray[np.uint64]:
        raise _unanswered()

    def included(self, count: int, rate: float) -> NDArray[np.bool_]:
        raise _unanswered()


class RecalledVault(Vault):
    """A vault with a tape and no records."""

    empty: ClassVar[bool] = True

    def __init__(self, spec: Spec, tape: Tape) -> None:
        self.spec = spec
        self.closed = False
        self.noise = _NoNoise()
        self.tape = tape
        self.folder = None
        self._derived = []
        self.labels = np.zeros(0, np.int64)
        self.present = np.zeros(0, bool)
        self._records = Records((0,), np.uint8, file=None)

    def expect_records(self) -> None:
        raise _unanswered()

    def batch(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
        raise _unanswered()

    def derive(self, feature: Callable[[Tensor], Tensor]) -> Vault:
        derived = RecalledVault(spec_of_features(self.spec, torch.func.vmap(feature)), self.tape)
        self._derived.append(derived)
        return derived


def recalled_images(spec: Spec, ledger: FinishedLedger, tape: Tape) -> PrivateImages:
    """A handle like the one that a finished run's method had, which repeats the recorded answers."""
    handle = PrivateImages()
    handle.spec = spec
    handle.ledger = ledger
    return _bind(handle, RecalledVault(spec, tape))
