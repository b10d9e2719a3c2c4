"""What all cells on the same private data cost together: a search over methods is paid for by the people in the data.

Read from the cells' own ledgers, finished or not, so that no second record can disagree with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sfumato.lab.store import PUBLIC_TRIAL, Store, Stored
from sfumato.privacy import Budget, FinishedLedger, Mechanism, epsilon_pld, epsilon_rdp

MOST_BY_PLD = 50.0  # a loss distribution of more fills the memory; beyond, RDP gives a valid, looser figure


@dataclass(frozen=True, slots=True)
class Total:
    """The cost of every release that was begun on one private data set, if all of them became known."""

    data: str
    cells: int
    epsilon: float
    delta: float
    accountant: str
    without_noise: int  # cells that asked without noise; with any of them nothing is guaranteed


def totals(store: Store) -> list[Total]:
    """One line for each private data set in the store, by content: two names of the same files are one."""
    groups: dict[str, list[Stored]] = {}
    for cell in (*store.cells(), *store.choices()):
        if cell.inputs().get(PUBLIC_TRIAL):
            continue
        groups.setdefault(str(cell.inputs().get("data_content", cell.inputs()["data"])), []).append(cell)
    return [_total(cells) for cells in groups.values()]


def _total(cells: list[Stored]) -> Total:
    inputs = [cell.inputs() for cell in cells]
    delta = max(float(cell_inputs["delta"] or 1e-5) for cell_inputs in inputs)
    names = " = ".join(dict.fromkeys(str(cell_inputs["data"]) for cell_inputs in inputs))
    asked = [mechanism for cell in cells for mechanism in _mechanisms(cell)]
    silent = sum(any(not mechanism.noise_multiplier for mechanism in _mechanisms(cell)) for cell in cells)
    if silent:
        return Total(names, len(cells), math.inf, delta, "none", silent)
    epsilon, accountant = composed(asked, delta)
    return Total(names, len(cells), epsilon, delta, accountant, 0)


def composed(mechanisms: list[Mechanism], delta: float) -> tuple[float, str]:
    """The epsilon of all of them together, and the accountant that computed it."""
    if not mechanisms:
        return 0.0, "PLD"
    by_rdp = epsilon_rdp(mechanisms, delta)
    return (epsilon_pld(mechanisms, delta), "PLD") if by_rdp <= MOST_BY_PLD else (by_rdp, "RDP")


def _mechanisms(cell: Stored) -> Iterable[Mechanism]:
    if not cell.ledger.exists():
        return []
    cell_inputs = cell.inputs()
    budget = Budget(float(cell_inputs["epsilon"]), float(cell_inputs["delta"] or 1e-5))
    return [charge.mechanism for charge in FinishedLedger(budget, cell.ledger).charges]
