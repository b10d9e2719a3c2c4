"""Critics tell records from generated images, class by class, and their directions are gradients of unit length."""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.synthesis.hinge_critics import HingeCritic
from sfumato.synthesis.shard_networks import ShardNetwork, State

CRITIC = HingeCritic(ShardNetwork("critic", inputs=6, hidden=8, outputs=3), rate=0.02, decay=0.0, seed=0)


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(count) % 3


def learnt(records: Tensor, labels: Tensor, present: Tensor, steps: int = 100) -> State:
    state = CRITIC.begin(0)
    for _ in range(steps):
        state = CRITIC.learn(state, records[:, None, None], labels, present, drawn(12, 2))
    return state


def test_it_tells_records_from_generated_images() -> None:
    (records, labels), (fake, fake_labels) = drawn(12, 1), drawn(12, 2)
    state = learnt(records, labels, torch.ones(12, dtype=torch.bool))
    assert (CRITIC.score(state, records, labels) > 0).float().mean() > 0.9
    assert (CRITIC.score(state, fake, fake_labels) < 0).float().mean() > 0.9


def test_an_absent_record_is_not_learnt_from() -> None:
    records, labels = drawn(12, 1)
    present = torch.arange(12) < 9
    other = torch.where(present[:, None], records, 100.0)
    for name, value in learnt(records, labels, present, 3).items():
        torch.testing.assert_close(value, learnt(other, labels, present, 3)[name])
    assert all(value.isfinite().all() for value in learnt(records, labels, present & False, 3).values())


def test_a_direction_is_the_gradient_of_the_score_at_unit_length() -> None:
    state, (z, labels) = CRITIC.begin(3), drawn(1, 4)
    at = z[0].clone().requires_grad_()
    CRITIC.score(state, at, labels[0]).backward()  # type: ignore[no-untyped-call]
    assert at.grad is not None
    torch.testing.assert_close(CRITIC.direction(state, z[0], labels[0]), at.grad / at.grad.norm())
