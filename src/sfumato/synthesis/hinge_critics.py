"""Critics on disjoint shards: each learns to tell the records of its shard from generated images of the same class.

A critic is conditional on the class by an output of its own for each class, which is a projection head (Miyato and
Koyama 2018) with a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sfumato.synthesis.shard_critics import one_hot, unit
from sfumato.synthesis.shard_guidance import ShardGuidance
from sfumato.synthesis.shard_networks import ShardNetwork, State, at_label
from sfumato.values import Spec


@dataclass(frozen=True)
class HingeCritic:
    """The critic of one shard: a teacher but for its answer, which each method gives it."""

    network: ShardNetwork
    rate: float
    decay: float  # of weights, relative to a step
    seed: int

    @classmethod
    def of(cls, settings: ShardGuidance, spec: Spec, **own: Any) -> Self:
        """The critics of a method, with what they need beside the common settings."""
        network = ShardNetwork("critic", settings.sees(spec).length, settings.critic_width, len(spec.classes))
        return cls(network, settings.critic_rate, settings.critic_decay, settings.seed, **own)

    @property
    def answers_from(self) -> tuple[str, ...]:
        return self.network.weights

    def begin(self, number: int) -> State:
        return self.network.begin(torch.Generator().manual_seed(self.seed * 1_000_003 + number))

    def learn(
        self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: tuple[Tensor, Tensor]
    ) -> State:
        """One step towards more than 1 at the shard's records and less than -1 at generated images."""
        real, (fake, fake_labels) = images.flatten(1), public
        weights = present / present.sum().clamp(min=1)

        def hinge(own: State) -> Tensor:
            at_real, at_fake = self.score(own, real, labels), self.score(own, fake, fake_labels)
            return ((1 - at_real).relu() * weights).sum() + (1 + at_fake).relu().mean()

        return self.network.trained(state, hinge, rate=self.rate, decay=self.decay)

    def score(self, state: State, z: Tensor, labels: Tensor) -> Tensor:  # (..., d), (...) -> (...)
        """Above 0 for what is more like a record than like a generated image."""
        return at_label(self.network(state, z), labels)

    def direction(self, state: State, z: Tensor, label: Tensor) -> Tensor:  # (d,), () -> (d,)
        """The gradient of the score of one image in z, at unit length."""
        return unit(self.network.slope(state, z, one_hot(label, self.network.outputs)))
