"""What GS-WGAN and DPAC have in common: teachers answer with a direction, and the generator follows it as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.errors import expect_one_of
from sfumato.privacy import Mechanism, PrivateImages, ShardedAnswers, ShardedSums, TeacherModel, Teachers
from sfumato.synthesis.guided_sampler import GuidedSampler
from sfumato.synthesis.shard_critics import LOSSES, Lesson, ShardCritic, drawn_lesson
from sfumato.synthesis.shard_guidance import Guide, ShardGuidance
from sfumato.values import Spec

Lessons = Callable[[Lesson], Any]  # from what critics learn from to what the method's teachers learn from


@dataclass(frozen=True)
class DirectedGenerator(ShardGuidance):
    """The hyperparameters of both methods, all public: these and those of `ShardGuidance`."""

    shards: int = 1_000
    batch: int = 100
    warmup: int = 60
    lessons: int = 1
    fakes: int = 100
    frequencies: int = 12
    critic_width: int = 32
    critic_rate: float = 2e-3
    critic_decay: float = 0.1
    learning_rate: float = 2e-3
    answers: str = "summed"  # over all teachers; "routed", as published: each image has one teacher, drawn for it
    warm_start: str = "own"  # each teacher against a generator of its own, thrown away; "shared": against the generator
    loss: str = "hinge"  # of critics, or "wasserstein", with the penalties of the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_one_of(self, answers=("summed", "routed"), warm_start=("own", "shared"), loss=LOSSES)

    def directions(self, purpose: str) -> list[Mechanism]:
        """The questions."""
        return self.questions(purpose, ShardedSums if self.answers == "summed" else ShardedAnswers)

    def critic(self, spec: Spec) -> ShardCritic:
        return ShardCritic(
            self.sees(spec).length, self.critic_width, len(spec.classes), self.loss, self.critic_rate, self.critic_decay
        )

    def directed(
        self, private: PrivateImages, asked: list[Mechanism], model: TeacherModel, lessons: Lessons, *, what: str
    ) -> GuidedSampler:
        return self.trained(private, asked, model, _Directions(self, len(private.spec.classes), lessons), what=what)


class _Directions(Guide):
    """The teachers' directions, and lessons that know whether a question comes next."""

    def __init__(self, settings: DirectedGenerator, classes: int, lessons: Lessons) -> None:
        self._settings = settings
        self._classes = classes
        self._lessons = lessons
        self._given = 0
        # What is drawn here reaches the teachers alone, so that it is no part of the state.
        self._draw = torch.Generator().manual_seed(settings.seed + 1)

    def lesson(self, seen: Tensor, labels: Tensor, *, step: int) -> Any:
        settings = self._settings
        whole = len(seen) // self._classes * self._classes  # as many of each class
        self._given += 1
        before = self._given - settings.warmup
        lesson = drawn_lesson(
            seen[:whole],
            labels[:whole],
            self._classes,
            records=settings.records,
            alone=settings.warm_start == "own" and before <= 0,
            step=step,
            last=before > 0 and before % settings.lessons == 0,
            draw=self._draw,
        )
        return self._lessons(lesson)

    def directions(self, teachers: Teachers, seen: Tensor, labels: Tensor) -> Tensor:
        return teachers((seen, labels), l2_bound=1.0).float()
