"""The one place that trains a classifier on released images: a schedule in, a student out."""

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
from sfumato.training.schedule import Loss as Loss
from sfumato.training.schedule import Schedule as Schedule
from sfumato.training.schedule import Subset as Subset
from sfumato.training.schedule import training_images as training_images
from sfumato.training.schedule import with_hard_labels as with_hard_labels
from sfumato.values import Images

CHECKPOINTS = 8  # calls of a callback during training


class Student(nn.Module):
    """A classifier with outputs scaled by the spread of the released logits: one learning rate suits every teacher."""

    scale: Tensor

    def __init__(self, network: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("scale", scale)

    def forward(self, images: Tensor) -> Tensor:  # (b, c, h, w) in [0, 1] -> (b, k)
        return cast(Tensor, self.scale * self.network(images))


Callback = Callable[[float, Student], None]  # fraction of training done, and the student in eval mode


class BestCheckpoint:
    """A callback that keeps the state with the best accuracy on held-out images; of equals, the earliest."""

    def __init__(self, kept: Images) -> None:
        self.kept = kept
        self.accuracy = -1.0
        self.since = 0  # checkpoints since the last improvement
        self.state: dict[str, Tensor] = {}

    def __call__(self, done: float, student: Student) -> None:
        right = predict(student, self.kept.pixels) == released_labels(self.kept)
        accuracy = right.double().mean().item()
        self.since += 1
        if accuracy > self.accuracy:
            self.accuracy = accuracy
            self.since = 0
            self.state = copy.deepcopy(student.state_dict())


def train(
    images: Images,
    schedule: Schedule,
    *,
    seed: int,
    what: str,
    callback: Callback | None = None,
    checkpoints: int = CHECKPOINTS,
) -> Student:
    """A student trained on these images and nothing else: the weights of the last step, or the best with `patience`.

    The callback is called at `checkpoints` equally spaced steps, the last at the end; it does not change training.
    """
    schedule.check(images)
    best = None
    if schedule.patience is not None:
        images, kept = split_off(images, seed=seed)
        best = BestCheckpoint(kept)
    steps = schedule.steps(images)
    steps_per_epoch = max(1, len(images) // schedule.batch_for(images))
    called_at = {math.ceil(steps * number / checkpoints) for number in range(1, checkpoints)} - {steps}
    with torch.random.fork_rng(devices=[]):  # initial weights and dropout
        torch.manual_seed(seed)
        student = _untrained(images, schedule)
        result = student if schedule.average is None else copy.deepcopy(student).eval()
        for done in track(_steps(student, images, schedule, seed), what=what, total=steps):
            if schedule.average is not None:
                update_average(result, student, min(schedule.average, (1 + done) / (10 + done)))
            if callback and done in called_at:
                _call(callback, done / steps, result)
            if best is not None and not done % steps_per_epoch:
                _call(best, done / steps, result)
                if best.since >= cast(int, schedule.patience):
                    break
        if best is not None and best.state:
            result.load_state_dict(best.state)
        if callback:
            _call(callback, 1.0, result)
    return result.eval()


def split_off(images: Images, *, seed: int, part: float = 0.1) -> tuple[Images, Images]:
    """Training images and a random held-out part of at least one image; at least two images stay for training."""
    count = min(max(1, round(part * len(images))), len(images) - 2)
    if count < 1:
        raise DataError(f"Expected at least 3 images, one to hold out, got {len(images)}.")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    return images.rows(order[count:]), images.rows(order[:count])


def released_labels(images: Images) -> Tensor:
    """The class of each image: the argmax of its logits, or its label where there are no logits."""
    return images.labels if images.logits is None else images.logits.argmax(1)


def outputs(network: nn.Module, pixels: Tensor) -> Tensor:
    """The network's logits of each image."""
    with torch.inference_mode():
        logits = torch.cat([network(unit(chunk)) for chunk in torch.split(pixels, 500)])  # (n, k)
    return logits.clone()  # an ordinary tensor; inference tensors cannot be used in autograd


def predict(network: nn.Module, pixels: Tensor) -> Tensor:
    """The predicted class of each image."""
    return outputs(network, pixels).argmax(1)


def loss_of(outputs: Tensor, images: Images, rows: Tensor, loss: Loss, temperature: float) -> Tensor:
    """The loss of outputs against the labels or logits released with these rows."""
    if loss == "labels":
        return cross_entropy(outputs, images.labels[rows])
    target = cast(Tensor, images.logits)[rows]
    if loss == "kl":
        teacher, student = log_softmax(target / temperature, 1), log_softmax(outputs / temperature, 1)
        # The factor T^2 keeps the size of the gradient, which otherwise shrinks as 1/T^2.
        return temperature**2 * kl_div(student, teacher, reduction="batchmean", log_target=True)
    # Distillation at infinite temperature. Only differences between logits matter, so both sides are centred.
    return mse_loss(outputs - outputs.mean(1, True), target - target.mean(1, True))


def unit(pixels: Tensor) -> Tensor:
    return (pixels.float() / 255).contiguous(memory_format=torch.channels_last)


def _scale(images: Images, loss: Loss) -> Tensor:
    """The standard deviation of the released logits, which are public; 1 where it is zero or logits are not used."""
    if loss != "logits":
        return torch.ones(())
    logits = cast(Tensor, images.logits)
    spread = (logits - logits.mean(1, True)).std()
    return spread if spread > 0 else torch.ones(())


def _untrained(images: Images, schedule: Schedule) -> Student:
    channels, height, width = images.pixels.shape[1:]
    network = classifiers.build(schedule.arch, channels, height, width, len(images.classes))
    student = Student(network, _scale(images, schedule.loss_for(images)))
    # Twice as fast on a CPU as the default memory layout.
    return student.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _steps(student: Student, images: Images, schedule: Schedule, seed: int) -> Iterator[int]:
    """Run the training steps; yields how many are done."""
    loss, steps = schedule.loss_for(images), schedule.steps(images)
    optimizer, rates = _optimizer(student, schedule, steps)
    order = torch.Generator().manual_seed(seed)
    for done, rows in enumerate(batches(len(images), schedule.batch_for(images), steps, order), start=1):
        error = loss_of(student(unit(images.pixels[rows])), images, rows, loss, schedule.temperature)
        if loss == "logits":
            error = error / student.scale**2
        optimizer.zero_grad()
        error.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rates.step()
        yield done


def _call(callback: Callback, done: float, student: Student) -> None:
    """Call back with the student in eval mode; random draws of the callback do not affect training."""
    training = student.training
    with torch.random.fork_rng(devices=[]):
        callback(done, student.eval())
    student.train(training)


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, decay: float) -> None:
    """One step of the moving average of weights and batch-norm statistics."""
    for mean, now in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(now, 1 - decay)
        else:
            mean.copy_(now)


def _optimizer(
    student: nn.Module, schedule: Schedule, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer: torch.optim.Optimizer
    if schedule.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            student.parameters(), schedule.rate, momentum=0.9, weight_decay=schedule.weight_decay
        )
    else:
        adam = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
        optimizer = adam(student.parameters(), schedule.rate, weight_decay=schedule.weight_decay)
    if schedule.milestones is None:
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=schedule.rate, total_steps=steps)
    milestones = [round(steps * fraction) for fraction in schedule.milestones]
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=schedule.decay)


def batches(count: int, size: int, steps: int, order: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of full batches; batch norm cannot use a batch of one."""
    rows = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(rows) < size:
            rows = torch.randperm(count, generator=order)
        yield rows[:size]
        rows = rows[size:]
