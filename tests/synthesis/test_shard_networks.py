"""Networks of teachers: Adam as torch has it, hundreds at once as one by one, and a class's own output."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from sfumato.synthesis.shard_networks import BETAS, ShardNetwork, State, at_label

NETWORK = ShardNetwork("critic", inputs=5, hidden=7, outputs=3)


def state(seed: int) -> State:
    return NETWORK.begin(torch.Generator().manual_seed(seed))


def batch(seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(6, 5, generator=draw), torch.randint(3, (6,), generator=draw)


def learn(before: State, z: Tensor, labels: Tensor) -> State:
    return NETWORK.trained(before, lambda s: (1 - at_label(NETWORK(s, z), labels)).square().mean(), rate=0.01)


def test_a_step_is_adams() -> None:
    mine, weights = state(0), [state(0)[name].requires_grad_() for name in NETWORK.weights]
    adam = torch.optim.Adam(weights, lr=0.01, betas=BETAS, eps=1e-8)
    for seed in range(5):
        z, labels = batch(seed)
        mine = learn(mine, z, labels)
        adam.zero_grad()
        outputs = NETWORK(dict(zip(NETWORK.weights, weights, strict=True)), z)
        (1 - outputs[torch.arange(6), labels]).square().mean().backward()
        adam.step()
    for name, weight in zip(NETWORK.weights, weights, strict=True):
        torch.testing.assert_close(mine[name], weight.detach(), rtol=1e-4, atol=1e-6)


def test_many_at_once_are_as_one_by_one() -> None:
    states = [state(seed) for seed in range(4)]
    stacked = {name: torch.stack([s[name] for s in states]) for name in states[0]}
    batches = [batch(seed) for seed in range(4)]
    together = vmap(learn)(stacked, *(torch.stack(part) for part in zip(*batches, strict=True)))
    for number, (own, (z, labels)) in enumerate(zip(states, batches, strict=True)):
        for name, value in learn(own, z, labels).items():
            torch.testing.assert_close(together[name][number], value, rtol=1e-4, atol=1e-6)


def test_weight_decay_shrinks() -> None:
    shrunk = NETWORK.trained(state(0), lambda s: 0.0 * s["critic.w1"].sum(), rate=0.5, decay=0.1)
    torch.testing.assert_close(shrunk["critic.w1"], 0.95 * state(0)["critic.w1"])
