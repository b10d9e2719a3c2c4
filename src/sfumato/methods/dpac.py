"""DP-GAN-DPAC (dual-purpose auxiliary classifier, on GS-WGAN): a classifier beside each critic guides the generator.

The classifier of a data shard learns from generated images and then from real ones, because images should be of use
both ways: to train on and to be tested on. The public code counts neither the classifier's noisy gradients nor the
batch, which it overwrites by 1,000 when the classifier enters: the claimed epsilon 10 is above 28,000 for the worst
data. Here critic and classifier of a shard answer as one bounded vector, which is counted once for each image; and as
in `gs-wgan` every image has a teacher drawn for it, or the mean of all teachers.

A classifier is initialised afresh for each question ("init"), so that what it learns from generated images alone is the
same for all shards and no private data is in it; that part is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.privacy import Mechanism, PrivateImages
from sfumato.synthesis.directed_generator import DirectedGenerator
from sfumato.synthesis.shard_critics import (
    DRIFT_PENALTY,
    SLOPE_PENALTY,
    Lesson,
    Records,
    ShardCritic,
    off_one,
    one_hot,
    unit,
)
from sfumato.synthesis.shard_networks import ShardNetwork, State
from sfumato.values import Images, Spec


class Parts(NamedTuple):
    """Which parts of the classifier's training are there (Table 4)."""

    classifier: bool = True
    generated: bool = True  # it learns from generated images (g2r)
    real: bool = True  # it learns from real images (r2g)
    sequential: bool = True  # first these, then those, and later than the critic (seq)
    fresh: bool = True  # it is initialised before each question (init)


ABLATIONS = {
    "full": Parts(),
    "baseline": Parts(classifier=False),
    "without-g2r": Parts(generated=False),
    "without-r2g": Parts(real=False),
    "without-seq": Parts(sequential=False),
    "without-init": Parts(fresh=False),
}


@dataclass(frozen=True)
class DPAC(DirectedGenerator, Synthesizer):
    """Hyperparameters, all public; those of critics, teachers and generator are in `DirectedGenerator`."""

    ablation: str = "full"  # a row of Table 4
    critic_weight: float = 0.8  # of its direction in an answer
    classifier_weight: float = 0.2
    classifier_entry: float = 0.1  # the part of all steps after which the classifier answers, too
    classifier_steps: int = 3  # on generated images, and as many on real ones
    classifier_rate: float = 2e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, ablation=ABLATIONS)
        expect_within(
            self,
            critic_weight=(0, 1),
            classifier_weight=(0, 1),
            classifier_entry=(0, 1),
            classifier_steps=(1, 1_000),
            classifier_rate=(0, 100),
        )
        if self.critic_weight + self.classifier_weight == 0:
            raise UsageError("Expected a weight above 0 for critic or classifier, got 0 for both.")

    @property
    def _parts(self) -> Parts:
        return ABLATIONS[self.ablation]

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        networks = "critics and classifiers" if self._parts.classifier else "critics"
        return self.directions(
            f"in which directions generated images should change, by {networks} on parts of the data"
        )

    def seconds(self, spec: Spec) -> float:
        weights = self.shards * self.sees(spec).length * self.critic_width
        return super().seconds(spec) + 2e-8 * self.all_steps * self.classifier_steps * weights

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        inputs, classes = self.sees(spec).length, len(spec.classes)
        critic = self.critic(spec)
        network = ShardNetwork("classifier", inputs, self.critic_width, classes)
        model = DualTeacher(self, critic, ShardClassifier(network, self.loss, self.classifier_rate, self.critic_decay))
        draw = torch.Generator().manual_seed(self.seed + 2)  # reaches the teachers alone
        return self.directed(
            private, list(self.plan(spec)), model, lambda lesson: self._lesson(lesson, model, draw), what="dpac"
        )

    def _lesson(self, lesson: Lesson, model: DualTeacher, draw: torch.Generator) -> DualLesson:
        """The critics' lesson; and before a question, from t_C on, a classifier that begins anew."""
        parts = self._parts
        entry = self.classifier_entry * self.all_steps if parts.sequential else 0
        if not parts.classifier or lesson.alone or lesson.step < entry:
            return DualLesson(lesson, learns=False)
        if not parts.fresh:
            return DualLesson(lesson, learns=True)
        if not lesson.last:
            return DualLesson(lesson, learns=False)
        begun = model.classifier.network.begin(draw)
        if parts.generated and parts.sequential:
            begun = model.classifier.learn(begun, _all_of(lesson, len(lesson.z)), self.classifier_steps)
        return DualLesson(lesson, learns=True, begun=begun)


class DualLesson(NamedTuple):
    """What critic and classifier of every shard learn from, beside their records."""

    lesson: Lesson
    learns: bool  # the classifier learns
    begun: State | None = None  # from this, which knows generated images at most


def _all_of(lesson: Lesson, count: int) -> Records:
    """Generated vectors as if they were records."""
    return Records(lesson.z[:count], lesson.labels[:count], torch.full((count,), 1 / count))


@dataclass(frozen=True)
class ShardClassifier:
    """A classifier as a pure function of its state."""

    network: ShardNetwork
    loss: str
    rate: float
    decay: float

    def score_weights(self, labels: Tensor) -> Tensor:
        """score(x, y) = logit_y - mean of the other logits, as weights of logits: (...) -> (..., k)."""
        mine = one_hot(labels, self.network.outputs)
        return mine - (1 - mine) / max(1, self.network.outputs - 1)

    def learn(self, state: State, seen: Records, steps: int) -> State:
        """L = -E score + 10 E (|grad score| - 1)^2 + 0.001 E score^2, or cross-entropy beside the hinge loss."""
        weights = self.score_weights(seen.labels)

        def loss(own: State) -> Tensor:
            logits = self.network(own, seen.z)
            if self.loss == "hinge":
                return (
                    seen.weights * cross_entropy(logits, one_hot(seen.labels, self.network.outputs), reduction="none")
                ).sum()
            score = (logits * weights).sum(-1)
            slopes = self.network.slope(own, seen.z, weights)
            return (seen.weights * (SLOPE_PENALTY * off_one(slopes) + DRIFT_PENALTY * score.square() - score)).sum()

        for _ in range(steps):
            state = self.network.trained(state, loss, rate=self.rate, decay=self.decay)
        return state

    def direction(self, state: State, z: Tensor, label: Tensor) -> Tensor:
        """The gradient of the score at a vector of that class, made a unit vector."""
        return unit(self.network.slope(state, z, self.score_weights(label)))


@dataclass(frozen=True)
class DualTeacher:
    """Critic and classifier of one shard, as the core's teachers are."""

    settings: DPAC
    critic: ShardCritic
    classifier: ShardClassifier

    @property
    def answers_from(self) -> tuple[str, ...]:
        return (*self.critic.network.weights, *self.classifier.network.weights, "classifier.weight")

    def begin(self, number: int) -> State:
        draw = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + number)
        own = {**self.critic.begin(draw), **self.classifier.network.begin(draw)}
        return {**own, "classifier.weight": torch.zeros(())}

    def learn(self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: DualLesson) -> State:
        records = Records.of(images, labels, present)
        state = self.critic.learn(state, records, public.lesson)
        if not public.learns:
            return state
        if public.begun is not None:
            state = {**state, **public.begun}
        for seen in self._phases(records, public):
            state = self.classifier.learn(state, seen, self.settings.classifier_steps)
        return {
            **state,
            "classifier.weight": torch.full_like(state["classifier.weight"], self.settings.classifier_weight),
        }

    def _phases(self, records: Records, public: DualLesson) -> list[Records]:
        """What this shard's classifier learns from, in order."""
        parts = ABLATIONS[self.settings.ablation]
        generated = _all_of(public.lesson, len(records.z))
        if parts.generated and parts.real and not parts.sequential:
            both = (torch.cat([a, b]) for a, b in zip(generated, records, strict=True))
            z, labels, weights = both
            return [Records(z, labels, weights / 2)]
        phases = [generated] if parts.generated and not parts.fresh else []
        return [*phases, records] if parts.real else phases

    def answer(self, state: State, query: Any) -> Tensor:
        """Both directions as one vector of length 1: what the core bounds, and counts once."""
        z, label = query
        of_critic = self.settings.critic_weight * self.critic.direction(state, z, label)
        return unit(of_critic + state["classifier.weight"] * self.classifier.direction(state, z, label))
