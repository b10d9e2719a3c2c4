"""The one place that trains a classifier on released images: a lesson in, a student out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from sfumato.errors import DataError, UsageError
from sfumato.networks import classifiers
from sfumato.progress import track
from sfumato.values import Images

Loss = Literal["logits", "kl", "labels"]
FULL_PRICE = 32 * 32  # pixels; a larger image counts as several against the bound on work
# How much less a network sees in a short lesson: measured, so that one lasts minutes (a ResNet half an hour).
PRICES = {"resnet18": 10, "resnet34": 20, "vgg11": 5, "mobilenet-v2": 5, "shufflenet-v2": 5}


@dataclass(frozen=True)
class Lesson:
    """How a student learns; every field is public, and nothing of it is chosen by looking at real images.

    There is no augmentation on purpose: the logits of a shifted or flipped image are the teacher's
    to say, and the teacher is not released.
    """

    arch: str = "small-cnn"
    loss: Loss | None = None  # None: logits where the release has them, labels where not
    temperature: float = 100.0  # of the loss "kl" alone
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float = 4e-3  # at its peak
    weight_decay: float = 0.01
    batch: int = 256
    least_batches: int = 16  # so many of them at least in an epoch, however few images there are
    max_epochs: float = 60.0
    images_seen: float = 240_000  # bound on the work, in images up to 32 px

    @classmethod
    def short(cls, arch: str = "small-cnn", *, soft: bool = False, **changes: Any) -> Self:
        """Minutes on two cores: AdamW under one cycle of the learning rate; `soft` to match logits.

        Logits say so much about each image that many small steps pay: on FashionMNIST pictures with a
        digit teacher's logits, 120,000 images seen in batches of 64 beat 240,000 in batches of 256 (judged on
        training digits that the teacher had not seen).
        """
        settings: dict[str, Any] = {}
        if soft or arch != "small-cnn":
            settings = {"batch": 64, "images_seen": 400_000 / PRICES.get(arch, 1)}
        return cls(**{"arch": arch, **settings, **changes})

    @classmethod
    def paper(cls, arch: str = "resnet18", **changes: Any) -> Self:
        """DP-ImgSyn's student: SGD for 200 epochs, the rate cut to a tenth at 120, 150 and 180; hours."""
        settings = {"loss": "kl", "optimizer": "sgd", "rate": 0.1, "weight_decay": 1e-4, "least_batches": 1,
                    "max_epochs": 200.0, "images_seen": math.inf}  # fmt: skip
        return cls(**{"arch": arch, **settings, **changes})

    def loss_for(self, images: Images) -> Loss:
        return self.loss or ("labels" if images.logits is None else "logits")

    def batch_for(self, images: Images) -> int:
        return max(2, min(self.batch, len(images) // self.least_batches))

    def steps(self, images: Images) -> int:
        area = images.pixels.shape[2] * images.pixels.shape[3]
        seen = min(self.max_epochs * len(images), self.images_seen * min(1.0, FULL_PRICE / area))
        return max(1, math.ceil(seen / self.batch_for(images)))

    def epochs(self, images: Images) -> float:
        return self.steps(images) * self.batch_for(images) / len(images)

    def check(self, images: Images) -> None:
        """Refuse a lesson that these images cannot give."""
        classifiers.check(self.arch)
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"Expected a finite temperature > 0, got {self.temperature:g}.")
        if len(images) < 2:
            raise DataError(f"Expected at least 2 images to learn from, got {len(images)}.")
        if self.loss_for(images) == "labels":
            return
        if images.logits is None:
            raise UsageError(
                f"Expected a release with logits for the loss {self.loss}, got one with labels alone.",
                fix="use the loss labels",
            )
        if not images.logits.isfinite().all():
            raise DataError("Expected finite logits in the release, got some that are not.")


class Student(nn.Module):
    """A classifier and the public scale of its logits, so that a learning rate fits every teacher."""

    scale: Tensor

    def __init__(self, network: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", scale)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.scale * self.network(images))


def train(images: Images, lesson: Lesson, *, seed: int, what: str) -> Student:
    """A student of these images and of nothing else, as it is after the last step."""
    lesson.check(images)
    loss = lesson.loss_for(images)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels, height, width = images.pixels.shape[1:]
        network = classifiers.build(lesson.arch, channels, height, width, len(images.classes))
    # Twice as fast on CPU as the default layout.
    student = Student(network, _scale(images, loss)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = lesson.steps(images)
    optimizer, schedule = _schedule(student, lesson, steps)
    order = torch.Generator().manual_seed(seed)
    batches = _batches(len(images), lesson.batch_for(images), steps, order)
    for rows in track(batches, what=what, total=steps):
        error = loss_of(student(unit(images.pixels[rows])), images, rows, loss, lesson.temperature)
        if loss == "logits":
            error = error / student.scale**2
        optimizer.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return cast(Student, student.eval())


def predict(network: nn.Module, pixels: Tensor) -> Tensor:
    """The class that the network gives each image."""
    with torch.inference_mode():
        return torch.cat([network(unit(chunk)).argmax(1) for chunk in torch.split(pixels, 500)])


def loss_of(outputs: Tensor, images: Images, rows: Tensor, loss: Loss, temperature: float) -> Tensor:
    """How far outputs are from what was released with these rows."""
    if loss == "labels":
        return cross_entropy(outputs, images.labels[rows])
    target = cast(Tensor, images.logits)[rows]
    if loss == "kl":
        teacher, student = log_softmax(target / temperature, 1), log_softmax(outputs / temperature, 1)
        # T^2, because the gradient of the rest shrinks as 1/T^2.
        return temperature**2 * kl_div(student, teacher, reduction="batchmean", log_target=True)
    # Distillation at infinite temperature. Only differences of logits mean something: both sides are centred.
    return mse_loss(outputs - outputs.mean(1, True), target - target.mean(1, True))


def unit(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _scale(images: Images, loss: Loss) -> Tensor:
    """The spread of the released logits, which is public; a release without any spread keeps scale one."""
    if loss != "logits":
        return torch.ones(())
    logits = cast(Tensor, images.logits)
    spread = (logits - logits.mean(1, True)).std()
    return spread if spread > 0 else torch.ones(())


def _schedule(
    student: nn.Module, lesson: Lesson, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    if lesson.optimizer == "adamw":
        adamw = torch.optim.AdamW(student.parameters(), weight_decay=lesson.weight_decay)
        return adamw, torch.optim.lr_scheduler.OneCycleLR(adamw, max_lr=lesson.rate, total_steps=steps)
    sgd = torch.optim.SGD(student.parameters(), lesson.rate, momentum=0.9, weight_decay=lesson.weight_decay)
    milestones = [steps * epoch // 200 for epoch in (120, 150, 180)]
    return sgd, torch.optim.lr_scheduler.MultiStepLR(sgd, milestones, gamma=0.1)


def _batches(count: int, size: int, steps: int, order: torch.Generator) -> Iterator[Tensor]:
    """Full batches only: batch norm needs company."""
    rows = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(rows) < size:
            rows = torch.randperm(count, generator=order)
        yield rows[:size]
        rows = rows[size:]
