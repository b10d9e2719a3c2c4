"""The ledger: the budget, the charges, and how many draws of each have begun; on disk before data is touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from sfumato.errors import BudgetExceeded, UsageError
from sfumato.privacy.journal import Journal
from sfumato.privacy.mechanism import Mechanism, mechanism_from_dict

M = TypeVar("M", bound=Mechanism)
_SLACK = 1e-9  # relative, for float rounding when the mechanisms of a calibrated plan are charged one by one


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent.

    Guarantee: `of` makes no budget with epsilon <= 0, nor with a delta that is not below 1/count.
    """

    epsilon: float
    delta: float

    @classmethod
    def of(cls, epsilon: float, *, count: int, delta: float | None = None) -> Self:
        """With the default delta: the largest power of ten below 1/count, at most 1e-5."""
        if delta is None:
            delta = min(1e-5, 10.0 ** -(math.floor(math.log10(max(count, 1))) + 1))
        if not epsilon > 0:
            raise UsageError(f"Expected epsilon > 0, got {epsilon}.", fix="give a number such as --epsilon 1")
        if not 1e-15 <= delta < 1 / max(count, 1):
            raise UsageError(
                f"Expected delta from 1e-15 to below 1/{count} (one over the number of records), got {delta}.",
                fix="leave --delta out for a good default",
            )
        return cls(float(epsilon), float(delta))


@dataclass(frozen=True, slots=True)
class Charge:
    """A mechanism that was paid for; `number` is its position in the ledger."""

    number: int
    mechanism: Mechanism
    purpose: str


class Ledger:
    """An append-only write-ahead log; without a path it is kept in memory, for tests and notebooks.

    Guarantee: `charge` returns only when the charge is durable and raises before anything is written if
    the total would exceed the budget; `begin` never grants more draws than were paid for, across crashes.
    """

    def __init__(self, budget: Budget, path: Path | None = None) -> None:
        self.budget = budget
        self._charges: list[Charge] = []
        self._begun: list[int] = []
        self._assumptions: list[str] = []
        self._requested = 0  # charges that this process has requested; a resumed run requests the recorded ones again
        self._journal = None if path is None else Journal(path)
        if self._journal is not None:
            try:
                self._resume(self._journal)
            except Exception:  # raised again below; the file must not stay locked
                self._journal.close()
                raise

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(self._charges)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(self._assumptions)

    def calibrate(self, *mechanisms: M) -> tuple[M, ...]:
        """The mechanisms with the least noise that the rest of the budget allows, divided by their shares."""
        from sfumato.privacy.accounting import calibrate

        spent = [charge.mechanism for charge in self._charges[: self._requested]]
        return calibrate(mechanisms, epsilon=self.budget.epsilon, delta=self.budget.delta, spent=spent)

    def charge(self, mechanism: Mechanism, *, purpose: str = "") -> Charge:
        """Pay for all rounds at once; what a killed run has already paid for is not charged again.

        The purpose is the mechanism's own, unless another one is given.
        """
        purpose = purpose or mechanism.purpose
        if not purpose:
            raise UsageError("Expected a purpose for a question, got none.", fix="say what it is asked for")
        if self._requested < len(self._charges):
            return self._recorded_charge(mechanism, purpose)
        if mechanism.noise_multiplier is None:
            raise UsageError(f"Expected a calibrated mechanism for {purpose!r}.", fix="call ledger.calibrate first")
        self._refuse_beyond_budget([*(charge.mechanism for charge in self._charges), mechanism])
        self._append({"record": "charge", "purpose": purpose, "mechanism": mechanism.to_dict()})
        self._requested += 1
        return self._charges[-1]

    def _refuse_beyond_budget(self, mechanisms: Sequence[Mechanism]) -> None:
        from sfumato.privacy.accounting import epsilon_pld, epsilon_rdp

        # the Renyi bound is fast and never too small: if it is within the budget, nothing slower is needed
        if math.isinf(self.budget.epsilon) or epsilon_rdp(mechanisms, self.budget.delta) <= self.budget.epsilon:
            return
        total = epsilon_pld(mechanisms, self.budget.delta)
        if total > self.budget.epsilon * (1 + _SLACK):
            raise BudgetExceeded(
                f"Expected a total epsilon of at most {self.budget.epsilon:g}, got {total:.6g} with this question.",
                fix="calibrate the mechanism to what is left, or ask for a larger epsilon",
            )

    def _recorded_charge(self, mechanism: Mechanism, purpose: str) -> Charge:
        """The next charge of the run that is resumed, which must be the requested one."""
        old = self._charges[self._requested]
        if (old.mechanism.to_dict(), old.purpose) != (mechanism.to_dict(), purpose):
            raise UsageError(
                f"Expected the resumed run to ask again for {old.purpose!r}, got {purpose!r} or other settings.",
                fix="resume with the same command and software versions, or choose another --out",
            )
        self._requested += 1
        return old

    def begin(self, charge: Charge, draws: int) -> None:
        """Mark draws of a charge as begun, durably, before their noise exists."""
        if not 1 <= draws <= min(charge.mechanism.mark_block, self.unbegun(charge)):
            raise BudgetExceeded(
                f"Expected a draw that was paid for; all draws of {charge.purpose!r} are begun.",
                fix="the lost draws of killed runs stay counted; a new run needs another --out and a new budget",
            )
        self._append({"record": "begin", "charge": charge.number, "draws": draws})

    def unbegun(self, charge: Charge) -> int:
        """Draws that were paid for and not begun."""
        return charge.mechanism.rounds * charge.mechanism.draws - self._begun[charge.number]

    def assume(self, statement: str) -> None:
        """Record a statement that the guarantee depends on; it is printed in the certificate."""
        if statement not in self._assumptions:
            self._append({"record": "assume", "statement": statement})

    def _append(self, record: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(record)
        self._apply(record)

    def _apply(self, record: dict[str, Any]) -> None:
        match record["record"]:
            case "charge":
                mechanism = mechanism_from_dict(record["mechanism"])
                self._charges.append(Charge(len(self._charges), mechanism, str(record["purpose"])))
                self._begun.append(0)
            case "begin":
                number = record["charge"]
                draws = record["draws"]
                if not (type(number) is type(draws) is int and number >= 0 and draws >= 1):
                    raise ValueError(f"a mark of {draws} draws on charge {number}")
                self._begun[number] += draws
            case "assume":
                self._assumptions.append(str(record["statement"]))
            case other:
                raise ValueError(f"unknown record {other!r}")

    def _resume(self, journal: Journal) -> None:
        records, torn = journal.read()
        opening = {"record": "open", "version": 1, "epsilon": str(self.budget.epsilon), "delta": self.budget.delta}
        if not records:
            journal.append(opening)
            return
        if records[0].get("version") != opening["version"]:
            raise journal.damaged(f"expected version {opening['version']}, got {records[0].get('version')}")
        if records[0] != opening:
            raise UsageError(
                f"Expected the budget of the run that is resumed ({records[0]}), got another.",
                fix="resume with the same --epsilon and --delta, or choose another --out",
            )
        try:
            for record in records[1:]:
                self._apply(record)
        except (KeyError, IndexError, TypeError, ValueError, UsageError) as error:
            raise journal.damaged(str(error)) from error
        if torn and self._charges:  # the lost record may have marked draws as begun; the most it could mark is counted
            last = self._charges[-1]
            self._append({"record": "begin", "charge": last.number, "draws": last.mechanism.mark_block})

    def close(self) -> None:
        """Close the file and release its lock, so that another process may open it."""
        if self._journal is not None:
            self._journal.close()
