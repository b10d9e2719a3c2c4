"""What the GANs of the PATE family have in common: critics on disjoint shards, all of which vote on generated images.

Critics see images by their low frequencies, so that small networks on few records learn something, and a direction in
these is a short vector. Every image that is voted on is one answer of the sum over all critics; what is made of the
noisy sums, and the generator, are post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from sfumato.errors import expect_one_of, expect_within
from sfumato.networks.generator import ConditionalGenerator, PatchGenerator
from sfumato.networks.low_frequencies import LowFrequencies
from sfumato.networks.refiner import Refiner
from sfumato.privacy import Budget, GaussianSum, Mechanism, PrivateImages, ShardedSums, TeacherModel, Teachers
from sfumato.synthesis.class_mixtures import ClassMixtureQuestions, choose_code
from sfumato.synthesis.guided_generator import GuidedGenerator
from sfumato.synthesis.guided_sampler import GuidedSampler
from sfumato.synthesis.hinge_critics import HingeCritic
from sfumato.synthesis.mixture_sampler import painter
from sfumato.synthesis.shard_networks import ShardNetwork
from sfumato.synthesis.teacher_guidance import Pace, teach
from sfumato.values import Spec

C = TypeVar("C", bound=HingeCritic)
REFINER_WIDTH = 16
REFINER_RATE = 0.02  # of the learning rate: painted images are near to what critics want, and large steps end in black
RECORDS_OF_SHARD = 30  # about; with fewer, votes have less noise and critics know less
MOST_SHARDS = 1_500
BATCH, FAKES = 60, 40  # images of a step and of a lesson, about: as many of each class
SMALL = 1e-12
GUIDE = "guide."  # what the guide keeps, in the state of a training


class Guide(ABC):
    """What a method makes of votes: directions in which generated images should change."""

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
class VotedGenerator:
    """The hyperparameters that these methods share, all public."""

    shards: int = 1_500
    steps: int = 300
    batch: int = 60  # generated images that a step asks about
    warmup: int = 20  # lessons of the critics before the first step
    lessons: int = 2  # before each step
    records: int = 20  # of each shard, in a lesson
    fakes: int = 40  # generated images in a lesson
    frequencies: int = 10  # lowest cosine frequencies per side, in which critics see images
    critic_width: int = 16
    critic_rate: float = 5e-3
    critic_decay: float = 0.01  # of weights, relative to a step
    latent: int = 10
    hidden: int = 256
    codes: int = 16
    learning_rate: float = 8e-3
    averaging: float = 0.98  # of the generator's weights
    diversity: float = 0.2  # weight of the distance between images of a class
    start: str = "nothing"  # or "painted": images from noisy mixtures, which the generator corrects
    start_share: float = 0.5  # of the budget, for the mixtures
    means_share: float = 0.15  # of the mixtures' budget
    components: int = 4  # of the mixture of each class
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, start=("nothing", "painted"))
        most, share = 10**6, (1e-6, 1 - 1e-6)
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
            start_share=share,
            means_share=share,
            components=(1, 1_000),
            seed=(0, 2**31 - 2),
        )
        self._pace  # noqa: B018 - refuses what is out of its range

    @property
    def _pace(self) -> Pace:
        return Pace(batch=self.batch, warmup=self.warmup, lessons=self.lessons, records=self.records)

    @property
    def _mixtures(self) -> ClassMixtureQuestions:
        return ClassMixtureQuestions(
            self.means_share, axes=48, components=self.components, component_rounds=4, seed=self.seed
        )

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        mixtures = ClassMixtureQuestions.for_task(spec, budget)
        return cls(
            shards=max(1, min(MOST_SHARDS, spec.count // RECORDS_OF_SHARD)),
            batch=len(spec.classes) * max(1, BATCH // len(spec.classes)),
            fakes=len(spec.classes) * max(1, FAKES // len(spec.classes)),
            means_share=mixtures.means_share,
            components=mixtures.components,
        )

    def seconds(self, spec: Spec) -> float:
        """Measured on one core: learning is mostly Adam's passes over all weights, answering one product each."""
        weights = self.sees(spec).length * self.critic_width * self.shards
        lessons = self.warmup + self.steps * self.lessons
        learning = lessons * weights * (6e-8 + 1e-9 * (self.records + self.fakes))
        answering = self.steps * self.batch * weights * 1e-9
        painting = 3e-4 * spec.count + 2e-4 * lessons * self.fakes if self.start == "painted" else 0.0
        return 5 + learning + answering + painting + self.steps * self.batch * spec.pixels * 1e-6

    def questions(self, spec: Spec, purpose: str) -> list[Mechanism]:
        """The questions of a painted start, if there is one; then the votes, one vector for each image of each step."""
        painted = self.start_share if self.start == "painted" else 0.0
        votes = ShardedSums(shards=self.shards, rounds=self.steps * self.batch, share=1 - painted, purpose=purpose)
        return [*(self._mixtures.plan(painted) if painted else []), votes]

    def sees(self, spec: Spec) -> LowFrequencies:
        """What critics see of an image."""
        return LowFrequencies(spec.shape, self.frequencies)

    def critic(self, spec: Spec, kind: type[C], **own: Any) -> C:
        """A method's kind of critic, with what it needs beside the common settings."""
        network = ShardNetwork("critic", self.sees(spec).length, self.critic_width, len(spec.classes))
        return kind(network, self.critic_rate, self.critic_decay, self.seed, **own)

    def trained(
        self,
        private: PrivateImages,
        asked: Sequence[Mechanism],
        model: TeacherModel,
        guide: Guide,
        *,
        what: str,
    ) -> GuidedSampler:
        """Critics and generator, trained in turn; the images come from the average of the generator."""
        spec = private.spec
        calibrated = private.ledger.calibrate(*asked)
        painted = [each for each in calibrated if isinstance(each, GaussianSum)]
        (votes,) = (each for each in calibrated if isinstance(each, ShardedSums))
        draw = torch.Generator().manual_seed(self.seed)
        guided = GuidedGenerator(
            self._begun(private, painted, draw),
            len(spec.classes),
            rate=self.learning_rate * (REFINER_RATE if self.start == "painted" else 1.0),
            steps=self.steps,
            averaging=self.averaging,
            diversity=self.diversity,
            draw=draw,
        )
        frequencies = self.sees(spec)
        seen = private.mapped(lambda image: frequencies.encode(image)[None, None])
        teachers = seen.teach(votes, model=model)
        teach(teachers, _Voted(self, guided, frequencies, guide), self._pace, what=what)
        return GuidedSampler(guided.average, spec.classes, seed=self.seed + 1)

    def _begun(
        self, private: PrivateImages, painted: Sequence[GaussianSum], draw: torch.Generator
    ) -> ConditionalGenerator:
        """The generator before its first step."""
        spec, classes = private.spec, len(private.spec.classes)
        if self.start == "painted":
            mixtures = self._mixtures.fit(private, painted, choose_code(private, painted))
            return Refiner(painter(mixtures, details=0), spec.shape, classes, width=REFINER_WIDTH, draw=draw)
        return PatchGenerator(spec.shape, classes, latent=self.latent, hidden=self.hidden, codes=self.codes, draw=draw)


class _Voted:
    """A generator in training whose images follow the guide, one step after another."""

    def __init__(
        self, settings: VotedGenerator, guided: GuidedGenerator, frequencies: LowFrequencies, guide: Guide
    ) -> None:
        self._settings = settings
        self._guided = guided
        self._frequencies = frequencies
        self._guide = guide

    def lesson(self) -> tuple[Tensor, Tensor]:
        images, labels = self._guided.fakes(self._settings.fakes)
        return self._frequencies.encode(images), labels

    def step(self, teachers: Teachers) -> None:
        """One step along directions of mean length 1; what no critic sees fades, or it would drift."""
        images, labels = self._guided.images(self._settings.batch)
        seen = self._frequencies.encode(images.detach())
        directions = self._guide.directions(teachers, seen, labels)
        length = torch.linalg.vector_norm(directions, dim=1).mean().clamp(min=SMALL)
        moved = self._frequencies.directions(directions / length)
        if self._settings.start == "nothing":
            moved -= images.detach() - 0.5 - self._frequencies.directions(seen)
        self._guided.follow(images, moved)

    def state(self) -> dict[str, Tensor]:
        guide = {f"{GUIDE}{name}": value for name, value in self._guide.state().items()}
        return {**self._guided.state(), **guide}

    def restore(self, state: dict[str, Tensor]) -> None:
        guide = {name.removeprefix(GUIDE): value for name, value in state.items() if name.startswith(GUIDE)}
        self._guided.restore({name: value for name, value in state.items() if not name.startswith(GUIDE)})
        self._guide.restore(guide)
