"""Choosing among candidates on private data, charged (report-noisy-max)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import UsageError
from sfumato.privacy.ledger import Charge, Ledger
from sfumato.privacy.mechanism import NoisyChoice
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.privacy.rows import Rows
from sfumato.privacy.tape import Answer
from sfumato.privacy.vault import Vault


def choose(vault: Vault, ledger: Ledger, charge: Charge, score: object) -> int:
    """The candidate with the largest noisy total score; the totals are not released.

    If a crash lost the answer after its draw had begun, the first candidate is returned, which is a public default.

    Guarantee: a record adds a number in [0, 1] to each candidate's total whatever `score` returns, so
    the choice is (1 / noise_multiplier)-DP.
    """
    mechanism = charge.mechanism
    if not isinstance(mechanism, NoisyChoice) or mechanism.rounds != 1:
        raise UsageError("Expected a NoisyChoice of one round; charge one for each choice.")
    answer = vault.tape.recall(charge.number, 0)
    if answer is None and not ledger.unbegun(charge) and not vault.empty:
        return 0
    if answer is None:
        totals = _totals(vault, Rows(score, 1.0), mechanism.candidates)  # type: ignore[arg-type]
        ledger.begin(charge, 1)
        scale = (mechanism.noise_multiplier or 0.0) * 2.0**LATTICE_BITS
        noisy = totals + scale * vault.noise.gumbel(mechanism.candidates)
        best = int(np.argmax(noisy))
        reach = 2.0**LATTICE_BITS * mechanism.candidates**0.5  # each total moves by one unit at most
        chosen = Answer(np.array([best]), 1)
        answer = vault.tape.settle(charge.number, 0, chosen, exact=totals[None], reach=reach)
    return int(answer.total[0])


def _totals(vault: Vault, rows: Rows, candidates: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    scores = rows.shape(vault.spec).numel()
    if scores != candidates:
        raise UsageError(f"Expected {candidates} scores for a record, got {scores}.")
    totals = torch.zeros(candidates, dtype=torch.float64)
    for start in range(0, vault.spec.count, 1024):
        numbers = np.arange(start, min(start + 1024, vault.spec.count))
        pixels, labels, present = vault.batch(numbers)
        totals += _unit_scores(rows.mapped(pixels, labels), present).sum(0, dtype=torch.float64)
    return totals.to(torch.int64).numpy()


def _unit_scores(scores: Tensor, present: Tensor) -> Tensor:
    """Scores in [0, 1] as integers on the lattice; all zero for a record that is absent or not finite."""
    counts = present & torch.isfinite(scores).all(1)
    bounded = torch.where(counts[:, None], scores.clamp(0, 1), 0.0)
    return bounded.mul(2.0**LATTICE_BITS).round()
