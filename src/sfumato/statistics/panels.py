"""Scores of a panel of classifiers, several networks with several seeds each, on images they were not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato.errors import DataError, UsageError
from sfumato.networks import classifiers
from sfumato.statistics.same_kind import check_classes, check_shape, known
from sfumato.training.student import (
    BestCheckpoint,
    Schedule,
    Student,
    outputs,
    released_labels,
    split_off,
    train,
    training_images,
)
from sfumato.values import Images, Reference, Score

Profile = Literal["cpu", "dpimagebench", "dpac"]
Selection = Literal["last", "synthetic"]
Table = Tensor  # (networks, seeds): one number of every classifier
PanelLogits = dict[str, list[Tensor]]  # of each network the logits (n, k) for every seed

CPU_EPOCHS = 10.0  # where images are few: on a release of digits 10, 30 and 60 gave 0.843, 0.845 and 0.844
CPU_PANEL = ("mlp", "small-cnn", "resnet8", "wrn-10-2", "resnext-11")
PANELS = {  # the networks that belong to a profile; DPImageBench takes the second three for CIFAR
    "cpu": (CPU_PANEL,),
    "dpimagebench": (("resnet110", "wrn-40-4", "resnext29-8x64"), ("resnet164", "wrn-28-10", "resnext28-8x64")),
    "dpac": (("mlp", "lenet"),),
}
LOSSES = {
    "labels": "cross-entropy",
    "logits": "squared error on centred logits",
    "kl": "Kullback-Leibler divergence at a temperature",
}
BINS = 15  # of confidence, as in Guo et al. (2017)


@dataclass(frozen=True)
class Spread:
    """A mean over networks and seeds, and its standard errors.

    Over networks: the standard error of the networks' means, as if they were a sample of all networks that one might
    use (it includes the variation over seeds). Over seeds: the standard error of the same mean for these networks.
    The error of the score is the larger of the two.
    """

    value: float
    over_networks: float | None
    over_seeds: float | None

    @classmethod
    def of(cls, table: Table) -> Spread:
        networks, seeds = table.shape
        by_network = table.mean(1)
        over_networks = by_network.std().item() / math.sqrt(networks) if networks > 1 else None
        over_seeds = (table.var(1).sum() / seeds).sqrt().item() / networks if seeds > 1 else None
        return cls(by_network.mean().item(), over_networks, over_seeds)

    @property
    def error(self) -> float | None:
        return max((e for e in (self.over_networks, self.over_seeds) if e is not None), default=None)

    def score(self, name: str, *, seeds: tuple[int, ...], higher_is_better: bool = True, **more: Any) -> Score:
        errors = {"error_over_networks": self.over_networks, "error_over_seeds": self.over_seeds}
        details = {**more.pop("details", {}), **errors}
        return Score(name, self.value, self.error, higher_is_better, seeds, details, **more)


def networks_of(profile: Profile, named: tuple[str, ...], images: Images) -> tuple[str, ...]:
    """The networks that were named, or else those that belong to the profile, grey or colour."""
    if profile not in PANELS:
        raise UsageError(f"Expected the profile {', '.join(PANELS)}, got {profile!r}.", fix="choose one of these")
    panels = PANELS[profile]
    return named or (panels[-1] if images.pixels.shape[1] == 3 else panels[0])


def schedule_for(profile: Profile, arch: str, images: Images, *, images_seen: float, max_epochs: float) -> Schedule:
    """How a profile trains this network; the two bounds apply to the profile cpu alone: others are as published."""
    if profile == "dpimagebench":
        return Schedule.dpimagebench(arch, colour=images.pixels.shape[1] == 3)
    if profile == "dpac":
        return Schedule.dpac(arch)
    schedule = Schedule.short(arch, soft=images.logits is not None)
    seen, epochs = min(schedule.images_seen, images_seen), min(schedule.max_epochs, max_epochs)
    return replace(schedule, images_seen=seen, max_epochs=epochs)


def check_panel(archs: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """Refuse an empty panel and unknown networks before the work."""
    if not archs or not seeds:
        raise UsageError(f"Expected at least one network and one seed, got {len(archs)} and {len(seeds)}.")
    if len(set(archs)) < len(archs):
        raise UsageError(f"Expected every network once, got {', '.join(archs)}.")
    for arch in archs:
        classifiers.check(arch)


def train_student(
    images: Images, schedule: Schedule, *, seed: int, what: str, selection: Selection = "last"
) -> Student:
    """A classifier after its last training step, or the checkpoint with the best accuracy on a tenth of the images."""
    if selection not in ("last", "synthetic"):
        raise UsageError(f"Expected the selection last or synthetic, got {selection!r}.")
    if selection == "last":
        return train(images, schedule, seed=seed, what=what)
    training, kept = split_off(images, seed=seed)
    best = BestCheckpoint(kept)
    student = train(training, schedule, seed=seed, what=what, callback=best)
    student.load_state_dict(best.state)
    return student


def student_logits(
    images: Images,
    schedules: dict[str, Schedule],
    tests: Sequence[Tensor],
    *,
    seeds: tuple[int, ...],
    what: str,
    selection: Selection = "last",
) -> list[PanelLogits]:
    """Train every network with every seed on `images` alone; its logits on each of the sets of pixels to test on.

    The one place where students are trained to measure utility: what a classifier trained on a release can do.
    """
    found: list[PanelLogits] = [{arch: [] for arch in schedules} for _ in tests]
    for arch, schedule in schedules.items():
        for seed in seeds:
            student = train_student(
                images, schedule, seed=seed, what=f"{what}, {arch}, seed {seed}", selection=selection
            )
            for logits, pixels in zip(found, tests, strict=True):
                logits[arch].append(outputs(student, pixels))
    return found


def student_answers(
    images: Images, arch: str, tests: Sequence[Tensor], *, seeds: tuple[int, ...], images_seen: int, what: str
) -> Tensor:  # (seeds, tests, n)
    """The classes that students of one architecture give to sets of n images each, after a short training."""
    images = training_images(images)
    schedule = Schedule.short(arch, soft=images.logits is not None, images_seen=images_seen)
    logits = student_logits(images, {arch: schedule}, tests, seeds=seeds, what=what)
    return torch.stack([torch.stack(of_test[arch]).argmax(2) for of_test in logits], dim=1)


def set_aside(images: Images, count: int) -> tuple[Images, Images]:
    """The images without `count` random ones, and these; the same for the same images."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images.rows(order[count:]), images.rows(order[:count])


def training_details(schedules: dict[str, Schedule], images: Images) -> dict[str, Any]:
    """How the networks of a panel were trained, for a score's details."""
    return {
        "loss": {arch: LOSSES[schedule.loss_for(images)] for arch, schedule in schedules.items()},
        "epochs": {arch: schedule.epochs(images) for arch, schedule in schedules.items()},
    }


def panel_score(
    name: str, logits: PanelLogits, images: Images, *, seeds: tuple[int, ...], details: dict[str, Any]
) -> Score:
    """The mean accuracy over networks and seeds of these logits; a part for every network."""
    labels = released_labels(images)
    answers = _answers(logits)
    table = (answers == labels).double().mean(2)
    judged = replace(images, labels=labels)
    parts = tuple(
        accuracy(f"{name}-{arch}", list(answers[row]), judged, seeds=seeds, details={})
        for row, arch in enumerate(logits)
    )
    of_classes = {
        "accuracies": dict(zip(logits, table.tolist(), strict=True)),
        "per_class": {c: None if t is None else t.mean().item() for c, t in by_class(answers, judged).items()},
        "precision": _precisions(answers, judged),
    }
    return Spread.of(table).score(name, seeds=seeds, details={**of_classes, **details}, parts=parts)


def _answers(logits: PanelLogits) -> Tensor:
    """The class that every classifier gives each image; (networks, seeds, n)."""
    return torch.stack([torch.stack(of_network).argmax(2) for of_network in logits.values()])


def by_class(answers: Tensor, images: Images) -> dict[str, Table | None]:
    """Every classifier's accuracy on each class; None where there are no images of it."""
    right = (answers == images.labels).double()
    rows = [images.labels == c for c in range(len(images.classes))]
    return {c: right[..., r].mean(-1) if r.any() else None for c, r in zip(images.classes, rows, strict=True)}


def worst_class(name: str, logits: PanelLogits, images: Images, *, seeds: tuple[int, ...]) -> Score:
    """The accuracy on the class that the panel, on average, does worst."""
    answers = _answers(logits)
    tables = {c: t for c, t in by_class(answers, images).items() if t is not None}
    worst = min(tables, key=lambda c: tables[c].mean().item())
    return Spread.of(tables[worst]).score(name, seeds=seeds, details={"worst_class": worst})


def calibration(name: str, logits: PanelLogits, images: Images, *, seeds: tuple[int, ...]) -> Score:
    """The mean of the classifiers' expected calibration errors."""
    errors = [
        [calibration_error(torch.softmax(of_seed, 1), images.labels) for of_seed in of_network]
        for of_network in logits.values()
    ]
    table = torch.tensor(errors, dtype=torch.float64)
    return Spread.of(table).score(name, seeds=seeds, higher_is_better=False, details={"bins": BINS})


def calibration_error(probabilities: Tensor, labels: Tensor, *, bins: int = BINS) -> float:
    """Expected calibration error (Guo et al. 2017): |confidence - accuracy| averaged over equal bins of confidence."""
    confidence, answer = probabilities.double().max(1)
    gap = (answer == labels).double() - confidence
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1  # a bin includes its upper edge
    return torch.zeros(bins, dtype=torch.float64).index_add(0, place, gap).abs().sum().item() / len(labels)


def accuracy(
    name: str, answers: Sequence[Tensor], held_out: Images, *, seeds: tuple[int, ...], details: dict[str, Any]
) -> Score:
    """The mean accuracy of one set of answers per seed; the worst class is the worst on average."""
    right = torch.stack([answer == held_out.labels for answer in answers]).double()  # (seeds, n)
    of_class = [right[:, held_out.labels == c].mean().item() for c in range(len(held_out.classes))]
    per_class = dict(zip(held_out.classes, of_class, strict=True))
    seen = {c: v for c, v in per_class.items() if not math.isnan(v)}  # nan where the held-out data has none
    accuracies = right.mean(1)
    return Score(
        name=name,
        value=float(accuracies.mean()),
        standard_error=float(accuracies.std() / math.sqrt(len(answers))) if len(answers) > 1 else None,
        higher_is_better=True,
        seeds=seeds,
        details={
            "accuracies": accuracies.tolist(),
            "per_class": {c: seen.get(c) for c in per_class},
            "worst_class": min(seen, key=seen.__getitem__),
            "worst_class_accuracy": min(seen.values()),
            **details,
        },
    )


def comparable(synthetic: Images, real: Reference) -> Images:
    """The held-out images of a known class, which must have the classes and the shape of the synthetic ones."""
    held_out = known(real.held_out)
    check_classes(synthetic, held_out)
    check_shape(synthetic, held_out)
    if len(synthetic) < 2 or not len(held_out):
        raise DataError(
            f"Expected at least 2 synthetic and 1 held-out image, got {len(synthetic)} and {len(held_out)}."
        )
    return held_out


def _precisions(answers: Tensor, images: Images) -> dict[str, float | None]:
    """By class, the share of the answers with that class that are right; None where there is no such answer."""
    right = answers == images.labels
    found: dict[str, float | None] = {}
    for number, name in enumerate(images.classes):
        answered = answers == number
        found[name] = right[answered].double().mean().item() if answered.any() else None
    return found
