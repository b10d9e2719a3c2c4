"""Critics on disjoint shards: what they learn from in a lesson, their losses, and their directions at an image.

A critic is conditional on the class by an output of its own for each class, which is a projection head (Miyato and
Koyama 2018) with a bias. Losses are those of WGAN-GP (Gulrajani et al. 2017), with the penalty on the critic's mean
(Karras et al. 2018), or the hinge loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.synthesis.shard_networks import ShardNetwork, State, at_label

LOSSES = ("wasserstein", "hinge")
SLOPE_PENALTY = 10.0
DRIFT_PENALTY = 1e-3
SMALL = 1e-12
OWN_LATENT = 8  # of a critic's own generator


class Records(NamedTuple):
    """Some records of one shard: vectors, labels, and weights that add up to 1, those of empty places being 0."""

    z: Tensor  # (m, d)
    labels: Tensor  # (m,)
    weights: Tensor  # (m,)

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, present: Tensor) -> Records:
        weights = present.float()
        return cls(images.flatten(1), labels, weights / weights.sum().clamp(min=1))


@dataclass(frozen=True)
class Lesson:
    """What all critics learn from beside their records: generated vectors of all classes in turn, random numbers."""

    z: Tensor  # (f, d)
    labels: Tensor  # (f,)
    turns: Tensor  # (m,): which generated vector of its class each record is compared with
    mix: Tensor  # (m, 1): where between the two the slope is penalised
    noise: Tensor  # (m, latent) for generators of their own
    alone: bool  # each critic learns against a generator of its own
    step: int  # steps of the generator so far
    last: bool  # before the next question

    def like(self, labels: Tensor, classes: int) -> Tensor:
        """A generated vector of each of these classes."""
        return self.z[labels + classes * self.turns[: len(labels)]]


def drawn_lesson(
    z: Tensor,
    labels: Tensor,
    classes: int,
    *,
    records: int,
    alone: bool,
    step: int,
    last: bool,
    draw: torch.Generator,
) -> Lesson:
    """A lesson on these generated vectors, with its random numbers."""
    turns = torch.randint(len(z) // classes, (records,), generator=draw)
    mix = torch.rand(records, 1, generator=draw)
    noise = torch.randn(records, OWN_LATENT, generator=draw)
    return Lesson(z, labels, turns, mix, noise, alone, step, last)


@dataclass(frozen=True)
class ShardCritic:
    """The critic of one shard and, for the time before the first question, a small generator of its own."""

    inputs: int
    hidden: int
    classes: int
    loss: str
    rate: float
    decay: float

    @property
    def network(self) -> ShardNetwork:
        return ShardNetwork("critic", self.inputs, self.hidden, self.classes)

    @property
    def opponent(self) -> ShardNetwork:
        """The generator that is thrown away."""
        return ShardNetwork("opponent", OWN_LATENT + self.classes, self.hidden, self.inputs)

    def begin(self, draw: torch.Generator) -> State:
        return {**self.network.begin(draw), **self.opponent.begin(draw)}

    def learn(self, state: State, records: Records, lesson: Lesson) -> State:
        """One step; with a generator of its own, one step of this too."""
        if not lesson.alone:
            return self._trained(state, records, lesson.like(records.labels, self.classes), lesson)
        given = torch.cat([lesson.noise[: len(records.z)], one_hot(records.labels, self.classes)], dim=1)
        state = self._trained(state, records, self.opponent(state, given), lesson)

        def fooled(own: State) -> Tensor:
            return -(records.weights * self._score(own, self.opponent(own, given), records.labels)).sum()

        return self.opponent.trained(state, fooled, rate=self.rate)

    def direction(self, state: State, z: Tensor, label: Tensor) -> Tensor:
        """The gradient of the critic at a vector of that class, made a unit vector."""
        return unit(self.network.slope(state, z, one_hot(label, self.classes)))

    def _score(self, state: State, z: Tensor, labels: Tensor) -> Tensor:
        return at_label(self.network(state, z), labels)

    def _trained(self, state: State, records: Records, fakes: Tensor, lesson: Lesson) -> State:
        """L = E D(fake) - E D(real) + 10 E (|grad D(between)| - 1)^2 + 0.001 E D(real)^2, or the hinge loss."""

        def loss(own: State) -> Tensor:
            real, fake = (self._score(own, z, records.labels) for z in (records.z, fakes))
            if self.loss == "hinge":
                return (records.weights * ((1 - real).relu() + (1 + fake).relu())).sum()
            mix = lesson.mix[: len(fakes)]
            slopes = self.network.slope(own, mix * records.z + (1 - mix) * fakes, one_hot(records.labels, self.classes))
            each = fake - real + SLOPE_PENALTY * off_one(slopes) + DRIFT_PENALTY * real.square()
            return (records.weights * each).sum()

        return self.network.trained(state, loss, rate=self.rate, decay=self.decay)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """By a comparison, because vmap takes no other way here: (...) -> (..., classes)."""
    return (labels[..., None] == torch.arange(classes)).float()


def off_one(slopes: Tensor) -> Tensor:
    """How far the lengths of gradients are from 1, squared: (..., d) -> (...)."""
    return ((slopes.square().sum(-1) + SMALL).sqrt() - 1).square()


def unit(vectors: Tensor) -> Tensor:
    return vectors / (vectors.square().sum(-1, keepdim=True) + SMALL).sqrt()
