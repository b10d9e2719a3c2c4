"""What classifiers say of images that they were not taught with, as scores: a panel of networks, several seeds each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from sfumato.errors import DataError, UsageError
from sfumato.networks import classifiers
from sfumato.training.student import BestCheckpoint, Schedule, Student, released_labels, split_off, train
from sfumato.values import Images, Reference, Score

Profile = Literal["cpu", "dpimagebench", "dpac"]
Selection = Literal["last", "synthetic"]
Table = Tensor  # (networks, seeds): one number of every classifier

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
    """A mean over networks and seeds, and how sure it is.

    Over networks: the standard error of the networks' means, as if they were drawn from all that one might use
    (what seeds do is in it). Over seeds: that of the same mean with these networks given. The error is the larger.
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
        raise UsageError(f"Expected the profile {', '.join(PANELS)}, got {profile!r}.")
    panels = PANELS[profile]
    return named or (panels[-1] if images.pixels.shape[1] == 3 else panels[0])


def lesson_for(profile: Profile, arch: str, images: Images, *, images_seen: float, max_epochs: float) -> Schedule:
    """How a profile teaches this network; the bounds shorten the profile cpu alone: others are as published."""
    if profile == "dpimagebench":
        return Schedule.dpimagebench(arch, colour=images.pixels.shape[1] == 3)
    if profile == "dpac":
        return Schedule.dpac(arch)
    lesson = Schedule.short(arch, soft=images.logits is not None)
    seen, epochs = min(lesson.images_seen, images_seen), min(lesson.max_epochs, max_epochs)
    return replace(lesson, images_seen=seen, max_epochs=epochs)


def check_panel(archs: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """Refuse a panel without anyone in it, or with someone unknown, before an hour is lost."""
    if not archs or not seeds:
        raise UsageError(f"Expected at least one network and one seed, got {len(archs)} and {len(seeds)}.")
    if len(set(archs)) < len(archs):
        raise UsageError(f"Expected every network once, got {', '.join(archs)}.")
    for arch in archs:
        classifiers.check(arch)


def teach(images: Images, lesson: Schedule, *, seed: int, what: str, selection: Selection = "last") -> Student:
    """A classifier of these images: as it is after its last step, or the look that did best on a tenth of them."""
    if selection not in ("last", "synthetic"):
        raise UsageError(f"Expected the selection last or synthetic, got {selection!r}.")
    if selection == "last":
        return train(images, lesson, seed=seed, what=what)
    lessons, kept = split_off(images, seed=seed)
    best = BestCheckpoint(kept)
    student = train(lessons, lesson, seed=seed, what=what, callback=best)
    student.load_state_dict(best.state)
    return student


def panel_of(
    images: Images, lessons: dict[str, Schedule], *, seeds: tuple[int, ...], what: str, selection: Selection = "last"
) -> Iterator[tuple[str, Student]]:
    """Every network with every seed, taught one after the other."""
    for arch, lesson in lessons.items():
        for seed in seeds:
            yield arch, teach(images, lesson, seed=seed, what=f"{what}, {arch}, seed {seed}", selection=selection)


def taught(lessons: dict[str, Schedule], images: Images) -> dict[str, Any]:
    """How the networks of a panel were taught, for a score's details."""
    return {
        "loss": {arch: LOSSES[lesson.loss_for(images)] for arch, lesson in lessons.items()},
        "epochs": {arch: lesson.epochs(images) for arch, lesson in lessons.items()},
    }


def panel_score(
    name: str, said: dict[str, list[Tensor]], images: Images, *, seeds: tuple[int, ...], details: dict[str, Any]
) -> Score:
    """The mean accuracy over networks and seeds of what was said, (n, k) each; a part for every network."""
    labels = released_labels(images)
    answers = torch.stack([torch.stack([s.argmax(1) for s in of_seed]) for of_seed in said.values()])  # (a, s, n)
    table = (answers == labels).double().mean(2)
    judged = replace(images, labels=labels)
    parts = tuple(
        accuracy(f"{name}-{arch}", list(answers[row]), judged, seeds=seeds, details={}) for row, arch in enumerate(said)
    )
    told = {
        "accuracies": dict(zip(said, table.tolist(), strict=True)),
        "per_class": {c: None if t is None else t.mean().item() for c, t in by_class(answers, judged).items()},
        "precision": _precisions(answers, judged),
    }
    return Spread.of(table).score(name, seeds=seeds, details={**told, **details}, parts=parts)


def by_class(answers: Tensor, images: Images) -> dict[str, Table | None]:
    """Every classifier's accuracy on each class; None where there are no images of it."""
    right = (answers == images.labels).double()
    rows = [images.labels == c for c in range(len(images.classes))]
    return {c: right[..., r].mean(-1) if r.any() else None for c, r in zip(images.classes, rows, strict=True)}


def worst_class(name: str, said: dict[str, list[Tensor]], images: Images, *, seeds: tuple[int, ...]) -> Score:
    """The accuracy on the class that the panel, on average, does worst."""
    answers = torch.stack([torch.stack([s.argmax(1) for s in of_seed]) for of_seed in said.values()])
    tables = {c: t for c, t in by_class(answers, images).items() if t is not None}
    worst = min(tables, key=lambda c: tables[c].mean().item())
    return Spread.of(tables[worst]).score(name, seeds=seeds, details={"worst_class": worst})


def calibration(name: str, said: dict[str, list[Tensor]], images: Images, *, seeds: tuple[int, ...]) -> Score:
    """The mean of the classifiers' expected calibration errors."""
    errors = [[calibration_error(torch.softmax(s, 1), images.labels) for s in of_seed] for of_seed in said.values()]
    table = torch.tensor(errors, dtype=torch.float64)
    return Spread.of(table).score(name, seeds=seeds, higher_is_better=False, details={"bins": BINS})


def calibration_error(probabilities: Tensor, labels: Tensor, *, bins: int = BINS) -> float:
    """How far confidence is from accuracy, averaged over images in equal bins of confidence (Guo et al. 2017)."""
    confidence, answer = probabilities.double().max(1)
    gap = (answer == labels).double() - confidence
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1  # a bin has its upper edge
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
    """The real images to judge on: those of a known class, which must be the synthetic images' kind."""
    held_out = known(real.held_out)
    if synthetic.classes != held_out.classes:
        raise UsageError(f"Expected the classes {held_out.classes}, got {synthetic.classes}.")
    if synthetic.pixels.shape[1:] != held_out.pixels.shape[1:]:
        shapes = tuple(held_out.pixels.shape[1:]), tuple(synthetic.pixels.shape[1:])
        raise UsageError(f"Expected synthetic images of shape {shapes[0]}, got {shapes[1]}.")
    if len(synthetic) < 2 or not len(held_out):
        raise DataError(
            f"Expected at least 2 synthetic and 1 held-out image, got {len(synthetic)} and {len(held_out)}."
        )
    return held_out


def known(images: Images) -> Images:
    """Without the records whose label is none of the classes: they count as absent."""
    return images.rows((images.labels >= 0) & (images.labels < len(images.classes)))


def _precisions(answers: Tensor, images: Images) -> dict[str, float | None]:
    """Of the times that any classifier answered a class, the part that were right; None where none ever did."""
    right, found = answers == images.labels, {}
    for number, name in enumerate(images.classes):
        asked = answers == number
        found[name] = right[asked].double().mean().item() if asked.any() else None
    return found
