"""GS-WGAN (Chen, Orekondy, Fritz 2020): a generator learns from the noisy image gradients of critics on data shards.

The public code draws one critic for a whole batch of generated images, and its accounting amplifies each image by the
number of critics as if they were drawn apart: one record can move all gradients of a batch, so that the claimed
epsilon 10 is above 300 for the worst data. DPImageBench leaves the batch out of the count as well and, when it loads
critics, gives all of them the weights of the last. Here every image is answered by a critic that is drawn for it
(`answers=routed`, as the paper's analysis assumes), or by the mean of all critics (`answers=summed`), which has several
times less noise in an answer; the ledger counts vectors, one for each image of each batch; and the critics, their
generators of the warm-up and their data stay in the core. They are small networks on low frequencies of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.contracts import Sampler, Synthesizer
from sfumato.privacy import Mechanism, PrivateImages
from sfumato.synthesis.directed_generator import DirectedGenerator
from sfumato.synthesis.shard_critics import Lesson, Records, ShardCritic
from sfumato.synthesis.shard_networks import State
from sfumato.values import Images, Spec


@dataclass(frozen=True)
class GSWGAN(DirectedGenerator, Synthesizer):
    """Hyperparameters, all public: those of `DirectedGenerator`."""

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        return self.directions("in which directions generated images should change, by critics on parts of the data")

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        model = CriticTeacher(self.critic(private.spec), self.seed)
        return self.directed(private, list(self.plan(private.spec)), model, lambda lesson: lesson, what="gs-wgan")


@dataclass(frozen=True)
class CriticTeacher:
    """The critic of one shard, as the core's teachers are."""

    critic: ShardCritic
    seed: int

    @property
    def answers_from(self) -> tuple[str, ...]:
        return self.critic.network.weights

    def begin(self, number: int) -> State:
        return self.critic.begin(torch.Generator().manual_seed(self.seed * 1_000_003 + number))

    def learn(self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: Lesson) -> State:
        return self.critic.learn(state, Records.of(images, labels, present), public)

    def answer(self, state: State, query: Any) -> Tensor:
        """The gradient of D(z, y) in z, of length 1: what moves the image towards the critic's records."""
        z, label = query
        return self.critic.direction(state, z, label)
