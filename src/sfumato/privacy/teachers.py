"""Models on disjoint shards, which are never released: what they say of generated images is answered with noise.

Each query is answered by one of them, drawn for it (`ShardedAnswers`), or by the sum of what all of them say
(`ShardedSums`).

Guarantee: a record is used by one teacher only; every answer comes from a teacher that was drawn for it independently,
or from all of them; what a teacher says is bounded as one vector, and every answer gets its own noise; which teacher
answered is not released. (Accounting would be wrong if one teacher answered a whole batch, as in GS-WGAN, or if a
second network's answers were not counted, as in DPAC.)
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from sfumato.errors import BudgetExceeded, UsageError, VerificationFailed
from sfumato.privacy.ledger import Charge, Ledger
from sfumato.privacy.mechanism import ShardedAnswers, ShardedSums
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.privacy.private import unlock
from sfumato.privacy.rows import ROW_BYTES, bound_rows, check_bound
from sfumato.privacy.tape import Answer
from sfumato.privacy.vault import Vault

State = dict[str, Tensor]
Batch = Tensor | tuple[Tensor, ...]  # images, or images and their labels, ...
# the teachers' private states are kept in this module, so that the handle that a method gets has no attribute with them
_STATES: WeakKeyDictionary[Any, State] = WeakKeyDictionary()
_SHARDS: WeakKeyDictionary[Any, Tensor] = WeakKeyDictionary()
REACH = 2 * 2.0**LATTICE_BITS  # two bounded vectors differ by at most twice the bound


class TeacherModel(Protocol):
    """One teacher as three pure functions; vmap runs them for all teachers, so that no teacher sees another's data."""

    @property
    def answers_from(self) -> tuple[str, ...]:
        """The parts of a state that an answer needs: the weights, say, and not what the optimiser keeps of them."""

    def begin(self, number: int) -> State:
        """The state before training: public, may depend on the teacher's number."""

    def learn(self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: Any) -> State:
        """One training step on one shard; `public` is the same for all (for instance generated images)."""

    def answer(self, state: State, query: Any) -> Tensor:
        """The teacher's vector for one query; several networks answer as one concatenated vector."""


class Teachers:
    """The teachers of one charge. All take the same training steps, so that none depends on which were drawn."""

    __slots__ = ("__weakref__", "_asked", "_charge", "_ledger", "_model", "_steps", "mechanism")

    def __init__(self, ledger: Ledger, charge: Charge, model: TeacherModel) -> None:
        if not isinstance(charge.mechanism, ShardedAnswers | ShardedSums):
            raise UsageError(f"Expected ShardedAnswers or ShardedSums to teach, got {type(charge.mechanism).__name__}.")
        self._ledger = ledger
        self._charge = charge
        self._model = model
        self._asked = 0
        self._steps = 0
        self.mechanism = charge.mechanism
        initial = [model.begin(number) for number in range(self.mechanism.shards)]
        _STATES[self] = {name: torch.stack([state[name] for state in initial]) for name in initial[0]}

    @property
    def rounds(self) -> int:
        """How many answers this run has in all; fewer than planned after a crash, because lost ones stay charged."""
        return unlock(self).tape.draws(self._charge.number) + self._ledger.unbegun(self._charge)

    def resumed(self) -> tuple[int, dict[str, Tensor]]:
        """How many questions the checkpoint of a killed run stands for, and what was computed from their answers.

        The next question is the one after those. The teachers are gone: they have to learn again.
        """
        checkpoint = unlock(self).tape.checkpoint(self._charge.number)
        if checkpoint is None:
            return 0, {}
        self._asked = checkpoint.rounds
        return checkpoint.rounds, {name: torch.from_numpy(value) for name, value in checkpoint.state.items()}

    def checkpoint(self, state: dict[str, Tensor]) -> None:
        """Keep what was computed from all answers so far in place of these; it comes from who asked."""
        kept = {name: value.detach().numpy() for name, value in state.items()}
        unlock(self).tape.keep(self._charge.number, self._asked, kept)

    def learn(self, public: Batch, *, records: int | None = None) -> None:
        """One training step for every teacher, each on so many records of its own shard, in turn (None: on all)."""
        vault = unlock(self)
        if vault.empty:  # no training is needed: the teachers' answers are on the tape
            return
        if self not in _SHARDS:
            _SHARDS[self] = _deal(vault.noise.permutation(vault.spec.count), self.mechanism.shards)
        shards = _SHARDS[self]
        size = shards.shape[1]
        each = size if records is None else min(records, size)
        chosen = shards[:, (self._steps * each + torch.arange(each)) % size]
        self._steps += 1
        pixels, labels, present = vault.batch(chosen.clamp(min=0).flatten().numpy())
        present &= (chosen >= 0).flatten()
        pixels[~present] = 0  # padding must not contain a record of another shard
        labels[~present] = 0
        pixels, labels, present = (part.reshape(*chosen.shape, *part.shape[1:]) for part in (pixels, labels, present))
        training_step = vmap(self._model.learn, in_dims=(0, 0, 0, 0, None), randomness="different")
        trained = training_step(_STATES[self], pixels, labels, present, public)
        _STATES[self] = {name: value.detach() for name, value in trained.items()}

    def __call__(self, queries: Batch, *, l2_bound: float) -> Tensor:
        """A noisy answer for each query: (queries, *answer); of `ShardedSums`, the sum over all teachers."""
        check_bound(l2_bound)
        vault = unlock(self)
        count = len(queries if isinstance(queries, Tensor) else queries[0])
        number = self._asked
        self._asked += 1
        answer = vault.tape.recall(self._charge.number, number)
        if answer is None:
            vault.expect_records()
        # A recorded answer needs the shape alone, which any teacher gives.
        drawn = torch.zeros(count, dtype=torch.int64)
        summed = isinstance(self.mechanism, ShardedSums)
        if answer is None and not summed:
            drawn = torch.from_numpy(vault.noise.drawn_shards(count, self.mechanism.shards))
        vectors = self._said_by(drawn, queries)  # (queries, *answer)
        if answer is None:
            clip = (self.mechanism.noise_multiplier or 0.0) > 0
            exact = self._sums(queries, l2_bound, clip) if summed else _bounded(vectors, l2_bound, clip)
            answer = self._noisy(vault, number, exact.long().numpy())
        if answer.total.size != vectors.numel():
            raise VerificationFailed("A recorded answer has another size than the question.", fix="use another --out")
        noisy_vectors = torch.from_numpy(answer.total).double().mul(l2_bound * 2.0**-LATTICE_BITS)
        return noisy_vectors.reshape(vectors.shape)

    def _said_by(self, drawn: Tensor, queries: Batch) -> Tensor:
        """What these teachers say, each to a query of its own."""
        states = {name: _STATES[self][name][drawn] for name in self._model.answers_from}
        said: Tensor = vmap(self._model.answer)(states, queries)
        return said.detach()

    def _sums(self, queries: Batch, l2_bound: float, clip: bool) -> Tensor:
        """The sum over all teachers of what each says to each query, bounded: (queries, width), whole numbers."""
        states = {name: _STATES[self][name] for name in self._model.answers_from}
        of_all = vmap(vmap(self._model.answer, in_dims=(None, 0)), in_dims=(0, None))
        width = self._said_by(torch.zeros(1, dtype=torch.int64), _first(queries)).numel()
        count = len(queries if isinstance(queries, Tensor) else queries[0])
        total = torch.zeros(count, width, dtype=torch.float64)
        together = max(1, ROW_BYTES // (4 * width * count))
        for start in range(0, self.mechanism.shards, together):
            said = of_all({name: value[start : start + together] for name, value in states.items()}, queries).detach()
            total += _bounded(said.flatten(0, 1), l2_bound, clip).reshape(*said.shape[:2], width).double().sum(0)
        return total

    def _noisy(self, vault: Vault, number: int, exact: NDArray[np.int64]) -> Answer:
        """Mark the draws as begun, durably, then add noise; the answer is on the tape when this returns."""
        count = len(exact)
        if count > self._ledger.unbegun(self._charge):
            raise BudgetExceeded(
                f"Expected at most {self._ledger.unbegun(self._charge)} more answers, got {count} queries.",
                fix="ask in smaller parts; `rounds` says how many answers there are in all",
            )
        for start in range(0, count, self.mechanism.mark_block):
            self._ledger.begin(self._charge, min(self.mechanism.mark_block, count - start))
        scale = (self.mechanism.noise_multiplier or 0.0) * REACH
        fresh = Answer(exact.ravel() + vault.noise.lattice_gaussian(exact.size, scale), count)
        return vault.tape.settle(self._charge.number, number, fresh, exact=exact, reach=REACH)


def _bounded(vectors: Tensor, l2_bound: float, clip: bool) -> Tensor:
    return bound_rows(vectors.flatten(1), torch.ones(len(vectors), dtype=torch.bool), l2_bound, clip=clip)


def _first(queries: Batch) -> Batch:
    return queries[:1] if isinstance(queries, Tensor) else tuple(part[:1] for part in queries)


def _deal(order: np.ndarray[tuple[int], np.dtype[np.int64]], shards: int) -> Tensor:
    """The record numbers of each shard, dealt round robin: (shards, size), -1 where a shard has one record less."""
    size = -(-len(order) // shards)
    padded = np.full(shards * size, -1, np.int64)
    padded[: len(order)] = order
    return torch.from_numpy(np.ascontiguousarray(padded.reshape(size, shards).T))
