"""The one place that trains a classifier on released images: a lesson in, a student out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss

from sfumato.errors import DataError
from sfumato.networks import classifiers
from sfumato.progress import track
from sfumato.training.lesson import Lesson as Lesson
from sfumato.training.lesson import Loss as Loss
from sfumato.training.lesson import Subset as Subset
from sfumato.training.lesson import hard as hard
from sfumato.training.lesson import lessons_of as lessons_of
from sfumato.values import Images

LOOKS = 8  # of a watch


class Student(nn.Module):
    """A classifier and the public scale of its logits, so that a learning rate fits every teacher."""

    scale: Tensor

    def __init__(self, network: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", scale)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.scale * self.network(images))


Watch = Callable[[float, Student], None]  # the part of the lesson that is over, and the student in eval mode


class Best:
    """A watch that keeps the candidate with the best accuracy on images kept apart; of equals, the earlier."""

    def __init__(self, kept: Images) -> None:
        self.kept = kept
        self.accuracy, self.since = -1.0, 0  # since: looks in vain
        self.state: dict[str, Tensor] = {}

    def __call__(self, done: float, student: Student) -> None:
        right = predict(student, self.kept.pixels) == released_labels(self.kept)
        accuracy, self.since = right.double().mean().item(), self.since + 1
        if accuracy > self.accuracy:
            self.accuracy, self.since = accuracy, 0
            self.state = copy.deepcopy(student.state_dict())


def train(
    images: Images, lesson: Lesson, *, seed: int, what: str, watch: Watch | None = None, looks: int = LOOKS
) -> Student:
    """A student of these images and of nothing else, as it is after the last step.

    A watch is called at `looks` equally spaced moments, the last at the end; training is the same without it.
    """
    lesson.check(images)
    best = None
    if lesson.patience is not None:
        images, kept = split_off(images, seed=seed)
        best = Best(kept)
    steps, an_epoch = lesson.steps(images), max(1, len(images) // lesson.batch_for(images))
    moments = {math.ceil(steps * look / looks) for look in range(1, looks)} - {steps}
    with torch.random.fork_rng(devices=[]):  # first weights and dropout
        torch.manual_seed(seed)
        student = _beginner(images, lesson)
        shown = student if lesson.average is None else copy.deepcopy(student).eval()
        for done in track(_steps(student, images, lesson, seed), what=what, total=steps):
            if lesson.average is not None:
                _follow(shown, student, min(lesson.average, (1 + done) / (10 + done)))
            if watch and done in moments:
                _look(watch, done / steps, shown)
            if best is not None and not done % an_epoch:
                _look(best, done / steps, shown)
                if best.since >= cast(int, lesson.patience):
                    break
        if best is not None and best.state:
            shown.load_state_dict(best.state)
        if watch:
            _look(watch, 1.0, shown)
    return shown.eval()


def split_off(images: Images, *, seed: int, part: float = 0.1) -> tuple[Images, Images]:
    """The images without a random part, and that part: at least one image, and never all but one."""
    count = min(max(1, round(part * len(images))), len(images) - 2)
    if count < 1:
        raise DataError(f"Expected at least 3 images, one to keep apart, got {len(images)}.")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images.rows(order[count:]), images.rows(order[:count])


def released_labels(images: Images) -> Tensor:
    """The label of an image is what its logits say, where there are any."""
    return images.labels if images.logits is None else images.logits.argmax(1)


def outputs(network: nn.Module, pixels: Tensor) -> Tensor:
    """What the network says of each image."""
    with torch.inference_mode():
        said = torch.cat([network(unit(chunk)) for chunk in torch.split(pixels, 500)])  # (n, k)
    return said.clone()  # a tensor like any other, which an inference tensor is not


def predict(network: nn.Module, pixels: Tensor) -> Tensor:
    """The class that the network gives each image."""
    return outputs(network, pixels).argmax(1)


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


def _beginner(images: Images, lesson: Lesson) -> Student:
    channels, height, width = images.pixels.shape[1:]
    network = classifiers.build(lesson.arch, channels, height, width, len(images.classes))
    student = Student(network, _scale(images, lesson.loss_for(images)))
    # Twice as fast on CPU as the default layout.
    return student.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _steps(student: Student, images: Images, lesson: Lesson, seed: int) -> Iterator[int]:
    """Take the lesson's steps; yields how many are done."""
    loss, steps = lesson.loss_for(images), lesson.steps(images)
    optimizer, schedule = _schedule(student, lesson, steps)
    order = torch.Generator().manual_seed(seed)
    for done, rows in enumerate(_batches(len(images), lesson.batch_for(images), steps, order), start=1):
        error = loss_of(student(unit(images.pixels[rows])), images, rows, loss, lesson.temperature)
        if loss == "logits":
            error = error / student.scale**2
        optimizer.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        yield done


def _look(watch: Watch, done: float, student: Student) -> None:
    """Show the student as it would be used; what the watch draws at random does not change the training."""
    training = student.training
    with torch.random.fork_rng(devices=[]):
        watch(done, student.eval())
    student.train(training)


@torch.no_grad()
def _follow(average: Student, student: Student, decay: float) -> None:
    """One step of the moving average, of weights and batch statistics alike."""
    for mean, now in zip(average.state_dict().values(), student.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(now, 1 - decay)
        else:
            mean.copy_(now)


def _schedule(
    student: nn.Module, lesson: Lesson, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer: torch.optim.Optimizer
    if lesson.optimizer == "sgd":
        optimizer = torch.optim.SGD(student.parameters(), lesson.rate, momentum=0.9, weight_decay=lesson.weight_decay)
    else:
        adam = torch.optim.AdamW if lesson.optimizer == "adamw" else torch.optim.Adam
        optimizer = adam(student.parameters(), lesson.rate, weight_decay=lesson.weight_decay)
    if lesson.falls is None:
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lesson.rate, total_steps=steps)
    milestones = [round(steps * part) for part in lesson.falls]
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=lesson.fall)


def _batches(count: int, size: int, steps: int, order: torch.Generator) -> Iterator[Tensor]:
    """Full batches only: batch norm needs company."""
    rows = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(rows) < size:
            rows = torch.randperm(count, generator=order)
        yield rows[:size]
        rows = rows[size:]
