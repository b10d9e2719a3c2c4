"""Models on disjoint shards, which are never released; each query is answered by one of them, with noise.

Guarantee: a record is used by one teacher only; every answer comes from a teacher that was drawn for it independently,
is bounded as one vector and gets its own noise; which teacher answered is not released. (Accounting would be wrong if
one teacher answered a whole batch, as in GS-WGAN, or if a second network's answers were not counted, as in DPAC.)
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from sfumato.errors import UsageError, VerificationFailed
from sfumato.privacy.ledger import Charge, Ledger
from sfumato.privacy.mechanism import ShardedAnswers
from sfumato.privacy.noise import LATTICE_BITS
from sfumato.privacy.private import unlock
from sfumato.privacy.rows import bound_rows, check_bound
from sfumato.privacy.tape import Answer

State = dict[str, Tensor]
# the teachers' private states are kept in this module, so that the handle that a method gets has no attribute with them
_STATES: WeakKeyDictionary[Any, State] = WeakKeyDictionary()
_SHARDS: WeakKeyDictionary[Any, Tensor] = WeakKeyDictionary()


class TeacherModel(Protocol):
    """One teacher as three pure functions; vmap runs them for all teachers, so that no teacher sees another's data."""

    def begin(self, number: int) -> State:
        """The state before training: public, may depend on the teacher's number."""

    def learn(self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: Tensor) -> State:
        """One training step on one shard; `public` is the same for all (for instance generated images)."""

    def answer(self, state: State, query: Tensor) -> Tensor:
        """The teacher's vector for one query; several networks answer as one concatenated vector."""


class Teachers:
    """The teachers of one charge. All take the same training steps, so that none depends on which were drawn."""

    __slots__ = ("__weakref__", "_asked", "_charge", "_ledger", "_model", "mechanism")

    def __init__(self, ledger: Ledger, charge: Charge, model: TeacherModel) -> None:
        if not isinstance(charge.mechanism, ShardedAnswers):
            raise UsageError(f"Expected ShardedAnswers to teach, got {type(charge.mechanism).__name__}.")
        self._ledger = ledger
        self._charge = charge
        self._model = model
        self._asked = 0
        self.mechanism = charge.mechanism
        initial = [model.begin(number) for number in range(self.mechanism.shards)]
        _STATES[self] = {name: torch.stack([state[name] for state in initial]) for name in initial[0]}

    def learn(self, public: Tensor) -> None:
        """One training step for every teacher, each on its own shard."""
        vault = unlock(self)
        if vault.empty:  # no training is needed: the teachers' answers are on the tape
            return
        if self not in _SHARDS:
            _SHARDS[self] = _deal(vault.noise.permutation(vault.spec.count), self.mechanism.shards)
        shards = _SHARDS[self]
        training_step = vmap(self._model.learn, in_dims=(0, 0, 0, 0, None), randomness="different")
        pixels, labels, present = vault.batch(shards.clamp(min=0).flatten().numpy())
        present &= (shards >= 0).flatten()
        pixels[~present] = 0  # padding must not contain a record of another shard
        labels[~present] = 0
        pixels, labels, present = (part.reshape(*shards.shape, *part.shape[1:]) for part in (pixels, labels, present))
        trained = training_step(_STATES[self], pixels, labels, present, public)
        _STATES[self] = {name: value.detach() for name, value in trained.items()}

    def __call__(self, queries: Tensor, *, l2_bound: float) -> Tensor:
        """A noisy answer for each query: (queries, *answer)."""
        check_bound(l2_bound)
        vault = unlock(self)
        number = self._asked
        self._asked += 1
        answer = vault.tape.recall(self._charge.number, number)
        drawn = torch.zeros(len(queries), dtype=torch.int64)  # for a recorded answer, any teacher gives the shape
        if answer is None:
            drawn = torch.from_numpy(vault.noise.drawn_shards(len(queries), self.mechanism.shards))
        states = {name: value[drawn] for name, value in _STATES[self].items()}  # of the drawn teachers
        vectors = vmap(self._model.answer)(states, queries)
        if answer is None:
            for start in range(0, len(queries), self.mechanism.mark_block):
                self._ledger.begin(self._charge, min(self.mechanism.mark_block, len(queries) - start))
            noise_multiplier = self.mechanism.noise_multiplier or 0.0
            everyone = torch.ones(len(queries), dtype=torch.bool)
            bounded = bound_rows(vectors.flatten(1), everyone, l2_bound, clip=noise_multiplier > 0)
            exact = bounded.long().numpy()
            reach = 2 * 2.0**LATTICE_BITS  # two bounded vectors differ by at most twice the bound
            noisy = exact.ravel() + vault.noise.lattice_gaussian(exact.size, noise_multiplier * reach)
            fresh = Answer(noisy, len(queries))
            answer = vault.tape.settle(self._charge.number, number, fresh, exact=exact, reach=reach)
        if answer.total.size != vectors.numel():
            raise VerificationFailed("A recorded answer has another size than the question.", fix="use another --out")
        noisy_vectors = torch.from_numpy(answer.total).double().mul(l2_bound * 2.0**-LATTICE_BITS)
        return noisy_vectors.reshape(vectors.shape)


def _deal(order: np.ndarray[tuple[int], np.dtype[np.int64]], shards: int) -> Tensor:
    """The record numbers of each shard, dealt round robin: (shards, size), -1 where a shard has one record less."""
    size = -(-len(order) // shards)
    padded = np.full(shards * size, -1, np.int64)
    padded[: len(order)] = order
    return torch.from_numpy(np.ascontiguousarray(padded.reshape(size, shards).T))
