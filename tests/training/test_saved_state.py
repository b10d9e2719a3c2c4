"""A training that was killed and goes on gives the same bytes."""

from __future__ import annotations

import torch
from torch import nn

from sfumato.training.saved_state import SavedState, part


class Fitting:
    """A linear layer on random targets, its optimiser and its source of random numbers."""

    def __init__(self) -> None:
        self.network = nn.Linear(3, 2)
        nn.init.ones_(self.network.weight)
        nn.init.zeros_(self.network.bias)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), 0.1)
        self.draw = torch.Generator().manual_seed(0)
        self.saved = SavedState({"net": self.network}, {"adam": self.optimizer}, self.draw)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.network(torch.randn(4, 3, generator=self.draw)).square().sum().backward()
            self.optimizer.step()


def test_going_on_is_as_if_nothing_had_happened() -> None:
    whole, killed, resumed = Fitting(), Fitting(), Fitting()
    whole.run(7)
    killed.run(3)
    tensors = killed.saved.tensors(3)
    killed.run(1)  # what comes after is not in what was saved
    assert resumed.saved.restore(tensors) == 3
    resumed.run(4)
    assert torch.equal(whole.network.weight, resumed.network.weight)
    wanted, found = whole.saved.tensors(7), resumed.saved.tensors(7)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_a_training_that_has_not_begun_can_be_saved() -> None:
    begun = Fitting()
    assert begun.saved.restore(Fitting().saved.tensors(0)) == 0


def test_parts_are_found_by_their_whole_name() -> None:
    assert part({"a/x": torch.ones(1), "ab/x": torch.zeros(1)}, "a") == {"x": torch.ones(1)}
