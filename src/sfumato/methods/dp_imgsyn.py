"""DP-ImgSyn (anonymous, TMLR submission 2024): public images, aligned to a private teacher and labelled by it.

A teacher is trained by DP-SGD (step 1), one noisy sum measures the statistics of its layers on the private
images (step 1b), public images are optimised to match them (step 2, Algorithm 1), and the teacher labels them
(step 3). The paper's step 1b adds noise to batches of activations, which does not bound the influence of a
record; here the means and second moments of each record are one bounded row of one charged sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import UsageError, expect_one_of
from sfumato.networks.linear_teacher import LinearHead
from sfumato.networks.resnet import resnet18, resnet34
from sfumato.networks.scattering import ScatteringFeatures
from sfumato.privacy import Budget, Descent, GaussianSum, PrivateImages, Query, descend
from sfumato.progress import track
from sfumato.synthesis.alignment import (
    Form,
    GroupNormTeacher,
    LayerTeacher,
    ScatteringTeacher,
    TargetStatistics,
    Weights,
    align,
    balanced_targets,
)
from sfumato.values import Images, Spec

TEACHERS = {
    "scattering": (0.1, 100.0),
    "resnet18-gn": (1.0, 0.5),
    "resnet34-gn": (1.0, 0.5),
}  # clipping bound, step size
STARTS = ("public", "gaussian", "blurred")
RESEARCH = ("paper", "code")  # published statistics, which are not private
CHUNK = 500  # images that the teacher labels at a time


@dataclass(frozen=True)
class DPImgSyn(Synthesizer):
    """Hyperparameters, all public; `steps` is the paper's k (its early stopping), which must be fixed in advance."""

    # step 1b depends only on the teacher and on the images that alignment starts from
    free: ClassVar = frozenset(
        {
            "steps",
            "form",
            "align_rate",
            "align_batch",
            "feature_weight",
            "class_weight",
            "variation_weight",
            "size_weight",
        }
    )

    teacher: str = "scattering"
    rounds: int = 800
    sampling: float = 0.03
    l2_bound: float = 0.0  # clipping bound of a gradient; 0: a default for the teacher
    rate: float = 1.0  # relative to the default step size of the teacher
    weight_decay: float = 0.0
    width: int = 16  # of a ResNet's first stage; the paper has 64
    steps: int = 0
    start: str = "public"
    blur: int = 7  # kernel of blurred noise
    statistics: str = "sound"  # "paper", "code": as published, which is not private; for research at epsilon inf
    statistics_share: float = 0.1  # of the budget
    teacher_noise: float = 0.0  # noise multiplier of the teacher in such research
    form: str = "code"  # of the losses: as in the authors' code, or as printed
    align_rate: float = 0.1
    align_batch: int = 80
    feature_weight: float = 10.0
    class_weight: float = 1.0
    variation_weight: float = 2.5e-5
    size_weight: float = 3e-8
    seed: int = 0

    def __post_init__(self) -> None:
        expect_one_of(self, teacher=TEACHERS, start=STARTS, statistics=("sound", *RESEARCH), form=("paper", "code"))
        whole = {
            "rounds": self.rounds,
            "width": self.width,
            "align_batch": self.align_batch,
            "steps": self.steps + 1,
            "seed": self.seed + 1,
        }
        for name, number in whole.items():
            if not 1 <= number <= 2**31:
                raise UsageError(f"Expected {name} as a whole number in its range, got {number}.")
        if self.blur % 2 == 0 or not 1 <= self.blur <= 31:
            raise UsageError(f"Expected blur as an odd kernel size up to 31, got {self.blur}.")
        if not 0 < self.statistics_share < 1 or self.rate <= 0 or self.align_rate <= 0:
            raise UsageError("Expected statistics_share between 0 and 1, and rate and align_rate above 0.")
        least = min(
            self.l2_bound,
            self.weight_decay,
            self.teacher_noise,
            self.feature_weight,
            self.class_weight,
            self.variation_weight,
            self.size_weight,
        )
        if least < 0:
            raise UsageError(f"Expected no weight, bound or noise below 0, got {least}.")

    @property
    def public_images(self) -> Literal["needed", "unused"]:  # type: ignore[override]
        return "needed" if self.start == "public" else "unused"

    @classmethod
    def for_task(cls, spec: Spec, budget: Budget) -> Self:
        # More rounds and larger steps help where there is less noise; about 2,000 records in a round keep the
        # sampling noise below the privacy noise.
        rounds = 400 if budget.epsilon < 0.5 else 800 if budget.epsilon < 5 else 1_000
        # Without clipping gradients are about ten times as long.
        rate = 0.02 if math.isinf(budget.epsilon) else min(2.0, budget.epsilon**0.3)
        return cls(rounds=rounds, sampling=min(0.5, max(0.03, 2_000 / max(spec.count, 1))), rate=round(rate, 3))

    def plan(self, spec: Spec) -> Sequence[GaussianSum]:
        share = self.statistics_share if self.steps else 0.0
        teacher = GaussianSum(
            rounds=self.rounds, sampling=self.sampling, share=1 - share, purpose="gradients of the teacher"
        )
        if not self.steps:
            return [teacher]
        return [
            teacher,
            GaussianSum(share=share, purpose="mean and variance of the teacher's layers on private images"),
        ]

    def seconds(self, spec: Spec) -> float:
        image = 3e-4 * spec.pixels / 784  # a pass of one image through the scattering teacher
        if self.teacher != "scattering":
            image = 2e-3 * (spec.height * spec.width / 784) * (self.width / 16) ** 2
        seen = self.rounds * self.sampling * spec.count
        training = spec.count * image + 1e-5 * seen if self.teacher == "scattering" else 3 * seen * image
        return 5 + 0.01 * self.rounds + training + spec.count * image * (1 + 3 * self.steps)

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        spec = private.spec
        mechanisms = private.ledger.calibrate(*self.plan(spec))
        if self.statistics in RESEARCH or self.teacher_noise:
            mechanisms = self._research(private, mechanisms)
        teacher = self._trained_teacher(private, mechanisms[0])  # step 1
        start = self._start(spec, public)
        draw = torch.Generator().manual_seed(self.seed)
        if not self.steps:
            return LabelledSampler(teacher, spec.classes, start)
        goal = self._measure(private, mechanisms[1], teacher, start(CHUNK))  # step 1b
        weights = Weights(self.feature_weight, self.class_weight, self.variation_weight, self.size_weight)

        def aligned(images: Tensor) -> tuple[Tensor, list[dict[str, float]]]:  # step 2
            targets = balanced_targets(len(images), len(spec.classes))
            return align(
                images,
                targets,
                teacher,
                goal,
                steps=self.steps,
                rate=self.align_rate,
                weights=weights,
                form=cast(Form, self.form),
                draw=draw,
            )

        return LabelledSampler(teacher, spec.classes, start, aligned, batch=self.align_batch)

    def _research(self, private: PrivateImages, mechanisms: Sequence[GaussianSum]) -> tuple[GaussianSum, ...]:
        """The published statistics are not bounded, so they are allowed only with an infinite budget."""
        if not math.isinf(private.ledger.budget.epsilon):
            raise UsageError(
                f"Expected epsilon inf for statistics={self.statistics} or teacher_noise: such a run is not private.",
                fix="use --epsilon inf for research, or statistics=sound",
            )
        return replace(mechanisms[0], noise_multiplier=self.teacher_noise), *mechanisms[1:]

    def _trained_teacher(self, private: PrivateImages, mechanism: GaussianSum) -> LayerTeacher:
        spec = private.spec
        if self.teacher == "scattering":
            features = ScatteringFeatures(*spec.shape)
            sealed = private.mapped(lambda image: features(image[None])[0])
            head = LinearHead(math.prod(features.shape), len(spec.classes))
            self._train(sealed.open(mechanism), head)
            return ScatteringTeacher(features, head).eval()
        build = resnet18 if self.teacher == "resnet18-gn" else resnet34
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = build(spec.channels, len(spec.classes), width=self.width, norm="group")
        self._train(private.open(mechanism), network)
        return GroupNormTeacher(network).eval()

    def _train(self, query: Query, model: nn.Module) -> None:
        bound, rate = TEACHERS[self.teacher]
        descent = Descent(self.l2_bound or bound, rate * self.rate, self.weight_decay)
        descend(query, model, lambda _: _cross_entropy, descent, what="teacher")

    def _measure(
        self, private: PrivateImages, mechanism: GaussianSum, teacher: LayerTeacher, sample: Tensor
    ) -> TargetStatistics:
        """Mean and variance of every channel over the private images, from one noisy sum.

        Scale and clipping bound are set on the images that alignment starts from, which are public.
        """

        def moments(images: Tensor) -> Tensor:  # (b, 2 * channels)
            return torch.cat([m for layer in self._measured_layers(teacher(images)[1]) for m in _moments(layer)], dim=1)

        with torch.no_grad():
            known = moments((sample + 1) / 2)
            sizes = [layer.shape[1] for layer in teacher((sample[:1] + 1) / 2)[1]]
        scale = known.square().mean(0).sqrt()
        scale = scale.clamp(min=float(scale.mean()) / 100)
        bound = 1.25 * float((known / scale).norm(dim=1).quantile(0.95))
        query = private.open(mechanism)
        total = query(lambda image, label: moments(image[None])[0] / scale, l2_bound=bound)
        parts = iter(
            torch.split((total / private.spec.count).float() * scale, [size for s in sizes for size in (s, s)])
        )
        means, variances = [], []
        for mean, second in zip(parts, parts, strict=True):
            means.append(mean)
            variances.append((second - mean.square()).clamp(min=1e-8))
        return TargetStatistics(tuple(means), tuple(variances))

    def _measured_layers(self, layers: list[Tensor]) -> list[Tensor]:
        """The layers that are measured; as in the paper's text, clipped and with noise added."""
        if self.statistics != "paper":
            return layers
        bound = self.l2_bound or TEACHERS[self.teacher][0]
        clipped = [a * (bound / a.flatten(1).norm(dim=1).clamp(min=bound))[:, None, None] for a in layers]
        return [a + self.teacher_noise * bound * torch.randn_like(a) for a in clipped]

    def _start(self, spec: Spec, public: Images | None) -> Callable[[int], Tensor]:
        """A function that returns a number of initial images, in [-1, 1]."""
        if self.start == "public":
            if public is None or not len(public):
                raise UsageError("Expected public images to start from.", fix="name some with --public")
            pixels = public.pixels
            return lambda count: (
                with_augmented_repeats(pixels, count, torch.Generator().manual_seed(self.seed)).float() / 127.5 - 1
            )
        kernel = self.blur if self.start == "blurred" else 1
        return lambda count: blurred_noise((count, *spec.shape), kernel, torch.Generator().manual_seed(self.seed))


def _cross_entropy(model: Callable[..., Tensor], image: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(model(image[None]), label[None])


def _moments(layer: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and second moment over positions: (b, channels, positions) to two of (b, channels)."""
    return layer.mean(2), layer.square().mean(2)


def with_augmented_repeats(pixels: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Each image once, in random order; further copies are rotated, mirrored and shifted."""
    parts: list[Tensor] = []
    wanted = count
    while wanted > 0:
        order = torch.randperm(len(pixels), generator=draw)[:wanted]
        part = pixels[order]
        if parts:
            turns, shifts = torch.randint(8, (len(part),), generator=draw), torch.randint(-4, 5, (2,), generator=draw)
            part = torch.stack([_turned(image, int(turn)) for image, turn in zip(part, turns, strict=True)])
            part = part.roll((int(shifts[0]), int(shifts[1])), (2, 3))
        parts.append(part)
        wanted -= len(part)
    return torch.cat(parts)


def _turned(image: Tensor, turn: int) -> Tensor:
    """One of the eight symmetries of a square; of a rectangle, the four that keep its shape."""
    quarter = turn % 4 if image.shape[1] == image.shape[2] else turn % 2 * 2
    return image.rot90(quarter, (1, 2)) if turn < 4 else image.flip(2).rot90(quarter, (1, 2))


def blurred_noise(shape: tuple[int, ...], kernel: int, draw: torch.Generator) -> Tensor:
    """Gaussian noise in [-1, 1], smoothed by a Gaussian of that kernel size and brought back to its contrast."""
    noise = torch.randn(shape, generator=draw)
    if kernel > 1:
        along = torch.exp(-torch.linspace(-2, 2, kernel).square() / 2)
        line = (along / along.norm()).expand(shape[1], 1, 1, kernel)
        half = kernel // 2
        noise = F.conv2d(F.pad(noise, (half,) * 4, mode="circular"), line, groups=shape[1])
        noise = F.conv2d(noise, line.transpose(2, 3), groups=shape[1])
    return noise.clamp(-1, 1)


class LabelledSampler:
    """The sampler: initial images, aligned if `steps` > 0, with the teacher's logits and predicted labels.

    `loss_history` holds, after sampling, the mean of every loss before each step of alignment.
    """

    def __init__(
        self,
        teacher: LayerTeacher,
        classes: tuple[str, ...],
        start: Callable[[int], Tensor],
        aligned: Callable[[Tensor], Any] | None = None,
        *,
        batch: int = CHUNK,
    ) -> None:
        self.teacher, self.classes, self.start, self.aligned, self.batch = teacher, classes, start, aligned, batch
        self.loss_history: list[dict[str, float]] = []

    def __call__(self, labels: Tensor) -> Images:
        images, histories = self.start(len(labels)), []
        if self.aligned is not None:
            batches = torch.split(images, self.batch)
            made = [self.aligned(batch) for batch in track(batches, what="alignment", total=len(batches))]
            images, histories = torch.cat([m[0] for m in made]), [m[1] for m in made]
        self.loss_history = [_mean(steps) for steps in zip(*histories, strict=True)]
        pixels = (images.add(1).mul(127.5)).round().clamp(0, 255).to(torch.uint8)
        logits = self.classify(pixels)
        return Images(pixels, logits.argmax(1), self.classes, logits)

    def classify(self, pixels: Tensor) -> Tensor:
        """The teacher's logits of any images; post-processing."""
        with torch.no_grad():
            return torch.cat([self.teacher(chunk.float() / 255)[0] for chunk in torch.split(pixels, CHUNK)])


def _mean(steps: tuple[dict[str, float], ...]) -> dict[str, float]:
    return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
