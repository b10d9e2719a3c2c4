"""PrivateImages, the sealed handle on private data, and Query, a question that was paid for.

Guarantee: pixels and labels are reachable only inside this package; a handle has no items, no length, no
iterator, no pickle and no attribute that holds them, and once closed it answers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sfumato.errors import BudgetExceeded, UsageError, VerificationFailed
from sfumato.privacy.ledger import Charge, Ledger
from sfumato.privacy.mechanism import GaussianSum, Mechanism, NoisyChoice, ShardedAnswers, ShardedSums
from sfumato.privacy.noise import LATTICE_BITS, Noise
from sfumato.privacy.rows import Rows
from sfumato.privacy.shards import Crew, ShardedVault
from sfumato.privacy.tape import Answer, Tape
from sfumato.privacy.vault import Vault
from sfumato.values import Source, Spec

if TYPE_CHECKING:
    from sfumato.privacy.teachers import TeacherModel, Teachers

Contribution = Callable[[Tensor, Tensor], Tensor]  # one image (c, h, w) in [0, 1] and its label, to one row
_VAULTS: WeakKeyDictionary[Any, Vault] = WeakKeyDictionary()
_Q = TypeVar("_Q")
_P = TypeVar("_P", bound="PrivateImages")


class PrivateImages:
    """Private data as a method sees it: public facts, a ledger, and questions that cost."""

    __slots__ = ("__weakref__", "ledger", "spec")

    spec: Spec
    ledger: Ledger

    @classmethod
    def seal(
        cls,
        records: Source | Crew,
        ledger: Ledger,
        *,
        folder: Path | None = None,
        noise: Noise | None = None,
        tape: Tape | None = None,
    ) -> Self:
        """Copy records into a vault, or leave them with their crew; `folder` has the answers of a killed run."""
        tape = tape or Tape(None if folder is None else folder / "tape")
        noise = noise or Noise()
        if isinstance(records, Crew):
            return _handle(cls(), ShardedVault(records, noise=noise, tape=tape), ledger)
        return _handle(cls(), Vault(records, folder=folder, noise=noise, tape=tape), ledger)

    def open(self, mechanism: GaussianSum, *, purpose: str = "", microbatch: int | None = None) -> Query:
        """Pay for all rounds of a sum, then get the question to ask."""
        vault = unlock(self)
        return _bind(Query(self.spec, self.ledger, _pay(self.ledger, vault, mechanism, purpose), microbatch), vault)

    def mapped(self, feature: Callable[[Tensor], Tensor]) -> PrivateImages:
        """Features of the same records by a public map of one image (c, h, w); nothing is released, so it is free."""
        vault = unlock(self)
        if vault.derived:
            raise UsageError("Expected images to map, got features.", fix="compose the two maps")
        return _handle(PrivateImages(), vault.derive(feature), self.ledger)

    def choose(self, mechanism: NoisyChoice, *, purpose: str = "", score: Contribution) -> int:
        """Pay, then pick the best of the candidates: `score` gives each a number in [0, 1] for one record."""
        from sfumato.privacy.selection import choose

        vault = unlock(self)
        return choose(vault, self.ledger, _pay(self.ledger, vault, mechanism, purpose), score)

    def teach(self, mechanism: ShardedAnswers | ShardedSums, *, purpose: str = "", model: TeacherModel) -> Teachers:
        """Pay for all answers, then set up teachers on disjoint shards."""
        from sfumato.privacy.teachers import Teachers

        vault = unlock(self)
        return _bind(Teachers(self.ledger, _pay(self.ledger, vault, mechanism, purpose), model), vault)

    def close(self) -> None:
        """End all access for good; the working copy of the data is deleted."""
        vault = _VAULTS.get(self)
        if vault is not None:
            vault.close()

    def __repr__(self) -> str:
        return f"PrivateImages({self.spec})"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("PrivateImages cannot be read, counted, copied or stored; ask through open(), which charges.")

    __getitem__ = __iter__ = __len__ = __array__ = __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _refuse


def unlock(handle: object) -> Vault:
    """The data behind a handle, for this package only."""
    vault = _VAULTS[handle]
    if vault.closed:
        raise UsageError("This private data set is closed: its fit is over.", fix="ask before fit returns")
    return vault


def _pay(ledger: Ledger, vault: Vault, mechanism: Mechanism, purpose: str) -> Charge:
    """Charge, and check that the ledger counts every draw that is on the tape."""
    charge = ledger.charge(mechanism, purpose=purpose)
    if vault.tape.draws(charge.number) > mechanism.rounds * mechanism.draws - ledger.unbegun(charge):
        raise VerificationFailed(
            "The ledger is older than the answers beside it, so it does not count all that was spent.",
            fix="restore the newest ledger, or choose another --out",
        )
    return charge


def _handle(handle: _P, vault: Vault, ledger: Ledger) -> _P:
    handle.spec = vault.spec
    handle.ledger = ledger
    return _bind(handle, vault)


def _bind(handle: _Q, vault: Vault) -> _Q:
    _VAULTS[handle] = vault
    return handle


class Query:
    """A sum that was paid for; one call is one round.

    Guarantee: what is returned is the sum of the sampled records' rows, each bounded to `l2_bound`, plus
    Gaussian noise of noise_multiplier * l2_bound, on a public lattice, and nothing else that depends on the data.
    """

    __slots__ = ("__weakref__", "_asked", "_charge", "_granted", "_ledger", "_microbatch", "mechanism", "spec")

    def __init__(self, spec: Spec, ledger: Ledger, charge: Charge, microbatch: int | None) -> None:
        if not isinstance(charge.mechanism, GaussianSum):
            raise UsageError(f"Expected a GaussianSum to open, got {type(charge.mechanism).__name__}.")
        self.spec = spec
        self.mechanism = charge.mechanism
        self._ledger = ledger
        self._charge = charge
        self._microbatch = microbatch
        self._asked = 0
        self._granted = 0

    @property
    def rounds(self) -> int:
        """How many rounds this run has in all; fewer than planned after a crash, because lost rounds stay charged."""
        left = self._ledger.unbegun(self._charge) + self._granted
        if self.mechanism.draws > 1:
            return self.mechanism.rounds
        return max(self._asked, unlock(self).tape.recorded(self._charge.number)) + left

    def resumed(self) -> tuple[int, dict[str, Tensor]]:
        """How many rounds the checkpoint of a killed run stands for, and what it had computed from their answers.

        The next question is the one after those rounds.
        """
        checkpoint = unlock(self).tape.checkpoint(self._charge.number)
        if checkpoint is None:
            return 0, {}
        self._asked = checkpoint.rounds
        return checkpoint.rounds, {name: torch.from_numpy(value) for name, value in checkpoint.state.items()}

    def checkpoint(self, state: dict[str, Tensor]) -> None:
        """Keep what was computed from all answers so far in place of these, so that a long training needs no more disk.

        The state comes from who asked, and so from answers alone.
        """
        vault = unlock(self)
        if not vault.empty:  # a finished run is not altered
            arrays = {name: value.detach().numpy() for name, value in state.items()}
            vault.tape.keep(self._charge.number, self._asked, arrays)

    def __call__(self, contribution: Contribution, *, l2_bound: float) -> Tensor:
        """The noisy sum of the rows; shaped like one row."""
        return self._ask(Rows(contribution, l2_bound))[0]

    def per_class(self, contribution: Contribution, *, l2_bound: float) -> Tensor:
        """The noisy sum of the rows of each class: (classes, *row). A record has one class, so the bound stays."""
        return self._ask(Rows(contribution, l2_bound, blocks=len(self.spec.classes)))

    def histogram(self, choice: Contribution, *, bins: int) -> Tensor:
        """How many records choose each bin, noisily: (bins,). A choice outside 0..bins-1 counts nowhere."""
        return self._ask(Rows(choice, 1.0, blocks=bins, chosen=True)).flatten()

    def _ask(self, rows: Rows) -> Tensor:
        number = self._asked
        self._asked += 1
        vault = unlock(self)
        if number >= self.mechanism.rounds:
            raise BudgetExceeded(f"Expected at most {self.mechanism.rounds} rounds of {self._charge.purpose!r}.")
        answer = vault.tape.recall(self._charge.number, number)
        shape = rows.shape(self.spec)
        if answer is None or (self.mechanism.draws > 1 and self._draws_left(number) > 0):
            answer = self._answer(vault, rows, number, answer)
        if answer.total.size != shape.numel():
            raise VerificationFailed("A recorded answer has another size than the question.", fix="use another --out")
        scale = rows.l2_bound * 2.0**-LATTICE_BITS / answer.draws
        return torch.from_numpy(answer.total).double().mul(scale).reshape(shape)

    def _draws_left(self, number: int) -> int:
        """Draws of a full-batch round that are still unbegun; earlier rounds have used up all of theirs."""
        draws = self.mechanism.draws
        return self._ledger.unbegun(self._charge) - draws * (self.mechanism.rounds - number - 1)

    def _answer(self, vault: Vault, rows: Rows, number: int, answer: Answer | None) -> Answer:
        noise_multiplier = self.mechanism.noise_multiplier or 0.0
        included = vault.noise.included(self.spec.count, self.mechanism.sampling)
        exact = vault.total(rows, included, clip=noise_multiplier > 0, microbatch=self._microbatch)
        scale = noise_multiplier * 2.0**LATTICE_BITS * self.mechanism.draws**0.5
        draws = max(self._draws_left(number), 1) if self.mechanism.draws > 1 else 1
        for _ in range(draws):
            self._begin()
            noisy = exact + vault.noise.lattice_gaussian(exact.size, scale)
            answer = Answer(noisy, 1) if answer is None else Answer(answer.total + noisy, answer.draws + 1)
            answer = vault.tape.settle(self._charge.number, number, answer, exact=exact[None], reach=2.0**LATTICE_BITS)
        assert answer is not None
        return answer

    def _begin(self) -> None:
        """Take one draw from what is marked as begun; mark more, durably, when that is used up."""
        if not self._granted:
            self._granted = min(self.mechanism.mark_block, max(self._ledger.unbegun(self._charge), 1))
            self._ledger.begin(self._charge, self._granted)
        self._granted -= 1
