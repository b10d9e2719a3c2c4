"""What GS-WGAN and DPAC have in common: a generator follows directions from teachers on disjoint shards.

Teachers see images by their low frequencies and answer in these, so that an answer is a short vector and its noise is
small; a direction in low frequencies is a direction of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sfumato.errors import UsageError, expect_one_of, expect_within
from sfumato.networks.gan_generators import GENERATORS, gan_generator
from sfumato.networks.generator import ConditionalGenerator
from sfumato.networks.low_frequencies import LowFrequencies
from sfumato.networks.refiner import Refiner
from sfumato.privacy import Budget, Mechanism, PrivateImages, ShardedAnswers, ShardedSums, TeacherModel, Teachers
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions, choose_code
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.synthesis.guided_sampler import GuidedSampler
from sfumato.synthesis.mixture_sampler import painter
from sfumato.synthesis.shard_critics import LOSSES, Lesson, drawn_lesson
from sfumato.synthesis.teacher_guidance import Pace, teach
from sfumato.values import Spec

LEAST_RECORDS = 20  # of a shard, at least, or its networks learn nothing
MOST_SHARDS = 1_000
REFINER_WIDTH = 16

Lessons = Callable[[Lesson], Any]  # from what critics learn from to what the method's teachers learn from


@dataclass(frozen=True)
class ShardGuidance:
    """The hyperparameters of both methods, all public."""

    shards: int = 1_000
    answers: str = "summed"  # over all teachers; "routed", as published: each image has one teacher, drawn for it
    steps: int = 600
    batch: int = 100  # images that a step asks about
    warmup: int = 60  # lessons before the first step
    warm_start: str = "own"  # each teacher against a generator of its own, thrown away; "shared": against the generator
    lessons: int = 2  # before each step
    records: int = 20  # of each shard, in a lesson
    fakes: int = 100  # generated images in a lesson
    frequencies: int = 12  # lowest cosine frequencies per side, in which teachers see and answer
    critic_width: int = 32
    critic_rate: float = 2e-3
    critic_decay: float = 0.1  # of weights, relative to a step
    loss: str = "hinge"  # of critics, or "wasserstein", with the penalties of the paper
    generator: str = "patches"  # or "resnet", "dcgan": with `codes` as their width
    latent: int = 10
    latents: str = "gaussian"  # or "binary": zeros and ones
    hidden: int = 256
    codes: int = 16
    learning_rate: float = 1e-3
    averaging: float = 0.98  # of the generator's weights
    diversity: float = 0.0  # weight of the distance between images of a class
    start: str = "nothing"  # or "painted": images from mixtures, which the generator corrects
    start_share: float = 0.3  # of the budget, for the mixtures
    means_share: float = 0.15  # of the mixtures' budget
    components: int = 4  # of the mixture of each class
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(
            self,
            answers=("summed", "routed"),
            warm_start=("own", "shared"),
            loss=LOSSES,
            generator=GENERATORS,
            latents=("gaussian", "binary"),
            start=("nothing", "painted"),
        )
        most = 10**6
        expect_within(
            self,
            shards=(1, most),
            steps=(1, most),
            fakes=(1, most),
            frequencies=(1, 10_000),
            critic_width=(1, most),
            critic_rate=(0, 100),
            critic_decay=(0, 100),
            latent=(1, 1_000),
            hidden=(1, most),
            codes=(1, most),
            learning_rate=(1e-9, 100),
            averaging=(0, 1 - 1e-9),
            diversity=(0, 1e6),
            start_share=(1e-6, 1 - 1e-6),
            means_share=(1e-6, 1 - 1e-6),
            components=(1, 1_000),
            seed=(0, 2**31 - 2),
        )
        self._pace  # noqa: B018 - refuses what is out of its range

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        mixtures = ClassMixtureQuestions.for_task(spec, budget)
        classes = len(spec.classes)
        return cls(
            shards=max(1, min(MOST_SHARDS, spec.count // LEAST_RECORDS)),
            batch=classes * max(1, 100 // classes),
            fakes=classes * max(1, 100 // classes),
            means_share=mixtures.means_share,
            components=mixtures.components,
        )

    @property
    def _pace(self) -> Pace:
        return Pace(batch=self.batch, warmup=self.warmup, lessons=self.lessons, records=self.records)

    @property
    def _mixtures(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(
            self.means_share, axes=48, components=self.components, component_rounds=4, seed=self.seed
        )

    def questions(self, spec: Spec, purpose: str) -> list[Mechanism]:
        """The questions of a painted start, if there is one; then the teachers' answers, one vector an image."""
        painted = self.start_share if self.start == "painted" else 0.0
        kind = ShardedSums if self.answers == "summed" else ShardedAnswers
        answers = kind(shards=self.shards, rounds=self.steps * self.batch, share=1 - painted, purpose=purpose)
        return [*(self._mixtures.plan(painted) if painted else []), answers]

    def seconds(self, spec: Spec) -> float:
        width = self.sees(spec).length * self.critic_width
        lessons = self.warmup + self.steps * self.lessons
        learning = lessons * self.shards * width * (12 * self.records / 2.5e10 + 1.2e-8)
        answering = self.steps * self.batch * width * (self.shards if self.answers == "summed" else 1) * 4e-10
        return 10 + learning + answering + self.steps * self.batch * spec.pixels * 4e-7

    def sees(self, spec: Spec) -> LowFrequencies:
        """What teachers see of an image."""
        return LowFrequencies(spec.shape, self.frequencies)

    def guided(
        self, private: PrivateImages, asked: list[Mechanism], model: TeacherModel, lessons: Lessons, *, what: str
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
        draw = torch.Generator().manual_seed(self.seed)
        guided = GuidedGenerator(
            self._begun(private, list(calibrated), draw),
            len(spec.classes),
            rate=self.learning_rate,
            steps=self.steps,
            averaging=self.averaging,
            diversity=self.diversity,
            draw=draw,
        )
        frequencies = self.sees(spec)
        seen = private.mapped(lambda image: frequencies.encode(image)[None, None])
        teachers = seen.teach(calibrated[-1], model=model)
        teach(teachers, _Directed(self, guided, frequencies, spec, lessons), self._pace, what=what)
        return GuidedSampler(guided.average, spec.classes, seed=self.seed + 1)

    def _begun(self, private: PrivateImages, calibrated: list[Any], draw: torch.Generator) -> ConditionalGenerator:
        spec, classes = private.spec, len(private.spec.classes)
        if self.start == "painted":
            code = choose_code(private, calibrated[:-1])
            mixtures = self._mixtures.fit(private, calibrated[:-1], code)
            paint = painter(mixtures, details=0)
            return Refiner(paint, spec.shape, classes, width=REFINER_WIDTH, draw=draw)
        return gan_generator(
            self.generator,
            spec.shape,
            classes,
            latent=self.latent,
            hidden=self.hidden,
            codes=self.codes,
            binary=self.latents == "binary",
            draw=draw,
        )


class _Directed:
    """A guided generator, the low frequencies of whose images get directions."""

    def __init__(
        self,
        settings: ShardGuidance,
        guided: GuidedGenerator,
        frequencies: LowFrequencies,
        spec: Spec,
        lessons: Lessons,
    ) -> None:
        self._settings = settings
        self._guided = guided
        self._frequencies = frequencies
        self._classes = len(spec.classes)
        self._lessons = lessons
        self._given = 0
        # What is drawn here reaches the teachers alone, so that it is no part of the state.
        self._draw = torch.Generator().manual_seed(settings.seed + 1)

    def lesson(self) -> Any:
        settings = self._settings
        images, labels = self._guided.fakes(settings.fakes // self._classes * self._classes)
        self._given += 1
        before = self._given - settings.warmup
        lesson = drawn_lesson(
            self._frequencies.encode(images),
            labels,
            self._classes,
            records=settings.records,
            alone=settings.warm_start == "own" and before <= 0,
            step=self._guided.step,
            last=before > 0 and before % settings.lessons == 0,
            draw=self._draw,
        )
        return self._lessons(lesson)

    def step(self, teachers: Teachers) -> None:
        images, labels = self._guided.images(self._settings.batch)
        noisy = teachers((self._frequencies.encode(images.detach()), labels), l2_bound=1.0).float()
        if self._settings.answers == "summed":
            noisy = noisy / self._settings.shards
        self._guided.follow(images, self._frequencies.directions(noisy))

    def state(self) -> dict[str, Tensor]:
        return self._guided.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._guided.restore(state)
