"""A generator follows noisy directions from teachers on disjoint shards: what all such methods have in common.

Teachers see images by their low frequencies and answer in these, so that small networks on few records learn something
and the noise of an answer is small; a direction in low frequencies is a direction of pixels. What a method makes of the
noisy answers, and the generator, are post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sfumato.errors import UsageError, expect_within
from sfumato.networks.low_frequencies import LowFrequencies
from sfumato.privacy import Budget, Mechanism, PrivateImages, ShardedAnswers, ShardedSums, TeacherModel, Teachers
from sfumato.synthesis.generator_start import GeneratorStart
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.synthesis.guided_sampler import GuidedSampler
from sfumato.synthesis.teacher_guidance import Pace, teach
from sfumato.values import Spec

RECORDS_OF_SHARD = 30  # at least, about; with fewer, answers have less noise and teachers know less
STEPS = {"painted": 40, "nothing": 100}  # by what the generator begins with
REFINER_RATE = 0.02  # of the learning rate: painted images are near to what teachers want, and large steps end in black
SMALL = 1e-12
GUIDE = "guide."  # what the guide keeps, in the state of a training


class Guide(ABC):
    """What teachers learn from, and what a method makes of their answers: directions for generated images."""

    def lesson(self, seen: Tensor, labels: Tensor, *, step: int) -> Any:
        """What teachers learn from, beside their records: generated images (f, d), before that step."""
        del step
        return seen, labels

    @abstractmethod
    def directions(self, teachers: Teachers, seen: Tensor, labels: Tensor) -> Tensor:
        """Ask one question about each image (b, d), and say in which direction it should change: (b, d)."""

    def state(self) -> dict[str, Tensor]:
        """What the next directions depend on, beside the answers."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from such numbers; from none, begin."""
        del state


@dataclass(frozen=True)
class ShardGuidance(GeneratorStart):
    """The hyperparameters of teachers, questions and generator, all public."""

    mixture_share: float = 0.5
    shards: int = 1_500
    steps: int = 0  # 0: a default for the start
    batch: int = 60  # images that a step asks about
    warmup: int = 20  # lessons before the first step
    lessons: int = 2  # before each step
    records: int = 20  # of each shard, in a lesson
    fakes: int = 40  # generated images in a lesson
    frequencies: int = 10  # lowest cosine frequencies per side, in which teachers see and answer
    critic_width: int = 16
    critic_rate: float = 5e-3
    critic_decay: float = 0.01  # of weights, relative to a step
    learning_rate: float = 8e-3
    averaging: float = 0.98  # of the generator's weights
    diversity: float = 0.2  # weight of the distance between images of a class

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 10**6
        expect_within(
            self,
            shards=(1, most),
            steps=(0, most),
            fakes=(1, most),
            frequencies=(1, 10_000),
            critic_width=(1, most),
            critic_rate=(0, 100),
            critic_decay=(0, 100),
            learning_rate=(1e-9, 100),
            averaging=(0, 1 - 1e-9),
            diversity=(0, 1e6),
        )
        self._pace  # noqa: B018 - refuses what is out of its range

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        classes, plain = len(spec.classes), cls()
        return cls(
            shards=max(1, min(plain.shards, spec.count // RECORDS_OF_SHARD)),
            batch=classes * max(1, plain.batch // classes),
            fakes=classes * max(1, plain.fakes // classes),
            **cls.for_mixtures(spec, budget),
        )

    @property
    def _pace(self) -> Pace:
        return Pace(batch=self.batch, warmup=self.warmup, lessons=self.lessons, records=self.records)

    @property
    def all_steps(self) -> int:
        return self.steps or STEPS[self.start]

    def questions(self, purpose: str, kind: type[ShardedSums | ShardedAnswers] = ShardedSums) -> list[Mechanism]:
        """Those of a painted start, if there is one; then the teachers' answers, a vector for each image of a step."""
        rounds = self.all_steps * self.batch
        answers = kind(shards=self.shards, rounds=rounds, share=self.share_left, purpose=purpose)
        return [*self.start_questions(), answers]

    def seconds(self, spec: Spec) -> float:
        """Measured on one core: learning is mostly Adam's passes over all weights, answering one product each."""
        weights = self.sees(spec).length * self.critic_width * self.shards
        lessons, asked = self.warmup + self.all_steps * self.lessons, self.all_steps * self.batch
        learning = lessons * weights * (6e-8 + 1e-9 * (self.records + self.fakes))
        painting = 2e-4 * lessons * self.fakes if self.painted else 0.0
        answering = asked * (weights * 1e-9 + spec.pixels * 1e-6)
        return 5 + self.start_seconds(spec) + learning + painting + answering

    def sees(self, spec: Spec) -> LowFrequencies:
        """What teachers see of an image."""
        return LowFrequencies(spec.shape, self.frequencies)

    def trained(
        self, private: PrivateImages, asked: Sequence[Mechanism], model: TeacherModel, guide: Guide, *, what: str
    ) -> GuidedSampler:
        """Teachers and generator, trained in turn; the images come from the average of the generator."""
        spec = private.spec
        if self.fakes < len(spec.classes):
            raise UsageError(
                f"Expected at least one generated image of each of the {len(spec.classes)} classes in a lesson, "
                f"got fakes={self.fakes}.",
                fix="set fakes to a multiple of the number of classes",
            )
        calibrated = private.ledger.calibrate(*asked)
        (answers,) = (each for each in calibrated if isinstance(each, ShardedSums | ShardedAnswers))
        draw = torch.Generator().manual_seed(self.seed)
        guided = GuidedGenerator(
            self.begun(private, calibrated, draw),
            len(spec.classes),
            rate=self.learning_rate * (REFINER_RATE if self.painted else 1.0),
            steps=self.all_steps,
            averaging=self.averaging,
            diversity=self.diversity,
            draw=draw,
        )
        frequencies = self.sees(spec)
        teachers = private.mapped(lambda image: frequencies.encode(image)[None, None]).teach(answers, model=model)
        teach(teachers, _Guided(self, guided, frequencies, guide), self._pace, what=what)
        return GuidedSampler(guided.average, spec.classes, seed=self.seed + 1)


class _Guided:
    """A generator in training whose images follow the guide, one step after another."""

    def __init__(
        self, settings: ShardGuidance, guided: GuidedGenerator, frequencies: LowFrequencies, guide: Guide
    ) -> None:
        self._settings = settings
        self._guided = guided
        self._frequencies = frequencies
        self._guide = guide

    def lesson(self) -> Any:
        images, labels = self._guided.fakes(self._settings.fakes)
        return self._guide.lesson(self._frequencies.encode(images), labels, step=self._guided.step)

    def step(self, teachers: Teachers) -> None:
        """One step along directions of mean length 1; what no teacher sees fades, or it would drift."""
        images, labels = self._guided.images(self._settings.batch)
        seen = self._frequencies.encode(images.detach())
        directions = self._guide.directions(teachers, seen, labels)
        length = torch.linalg.vector_norm(directions, dim=1).mean().clamp(min=SMALL)
        moved = self._frequencies.directions(directions / length)
        if not self._settings.painted:
            moved -= images.detach() - 0.5 - self._frequencies.directions(seen)
        self._guided.follow(images, moved)

    def state(self) -> dict[str, Tensor]:
        guide = {f"{GUIDE}{name}": value for name, value in self._guide.state().items()}
        return {**self._guided.state(), **guide}

    def restore(self, state: dict[str, Tensor]) -> None:
        guide = {name.removeprefix(GUIDE): value for name, value in state.items() if name.startswith(GUIDE)}
        self._guided.restore({name: value for name, value in state.items() if not name.startswith(GUIDE)})
        self._guide.restore(guide)
