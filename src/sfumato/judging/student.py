"""The `student` command: classifiers trained on the files of a release alone, tested on real images; lab side."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from torch import nn

from sfumato.contracts import Reading
from sfumato.errors import DataError, UsageError, printable
from sfumato.judging.reference import reference_for
from sfumato.lab.folder import NOTICE, Lab
from sfumato.networks import classifiers
from sfumato.networks.patches import SMALLEST
from sfumato.networks.photograph_features import PhotographFeatures
from sfumato.networks.public_network import named_features
from sfumato.release import read_release
from sfumato.statistics.panels import accuracy, comparable, set_aside, student_logits
from sfumato.training.linear_student import fit_linear_student
from sfumato.training.student import Loss, Schedule, Subset, outputs, released_labels, training_images
from sfumato.values import Images, Reference, Release, Score

HELD_OUT, MOST_HELD_OUT = 20, 2_000  # one released image in 20 is held out from training, at most 2,000
MOST_SEEDS = 1_000
FEATURES = "features"  # the student that uses the release's public network
FIXED_FEATURES = "fixed-features"  # the student that uses the features that are shipped with this package
LINEAR = (FEATURES, FIXED_FEATURES)
TABLE = "students.md"
HEAD = (
    "| architecture | schedule | loss | epochs | seeds | accuracy | error | worst class | agreement | judged on |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def train_student(
    folder: Path | str,
    real: str,
    *,
    arch: str = "small-cnn",
    seeds: int = 3,
    schedule: Literal["short", "paper"] = "short",
    loss: Loss | None = None,
    subset: Subset | None = None,
    temperature: float | None = None,
    reading: Reading | None = None,
) -> Score:
    """Train students on the release in `folder` and test them on real data; the results go to its lab folder.

    Nothing is selected: every seed counts, each as it is after its last step.
    """
    if arch not in LINEAR:
        classifiers.check(arch, others=LINEAR)
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"Expected 1 to {MOST_SEEDS} seeds, got {seeds}.", fix="give a number in this range, or none")
    release = read_release(Path(folder))
    settings: Schedule | nn.Module
    if arch in LINEAR:
        if schedule != "short" or (loss, subset, temperature) != (None, None, None):
            raise UsageError(
                f"Expected no schedule, loss, subset or temperature for the student {arch}, got one.",
                fix="leave them out: it is fitted by least squares",
            )
        training, kept = _split(_network_images(release) if arch == FEATURES else training_images(release.images))
        settings = _features(arch, training)
    else:
        training, kept = _split(training_images(release.images, loss, subset))
        # Training on logits, or on the labels of both subsets together, needs many small steps.
        long = subset == "all" or (training.logits is not None and loss != "labels")
        settings = _schedule(arch, schedule, loss, temperature, long=long)
        settings.check(training)
    reference = reference_for(release, real, reading or Reading())
    comparable(training, reference)
    lab = Lab.beside(release.path.absolute())
    with lab:
        pass  # report an unusable lab folder before the hours of training
    asked: dict[str, str] = {"schedule": schedule, "subset": subset or "by default"}
    score = _score(settings, training, kept, reference, tuple(range(seeds)), arch, asked)
    with lab:
        how = asdict(settings) if isinstance(settings, Schedule) else "least squares"
        document = {"notice": NOTICE.splitlines()[0], "score": asdict(score), "schedule": how}
        lab.write(f"student-{arch}.json", json.dumps(document, indent=2, default=str) + "\n")
        lab.write(TABLE, _table(lab.folder / TABLE, score))
    return score


def summary(score: Score) -> str:
    """A student's score in a few lines for a terminal."""
    details = score.details
    error = "" if score.standard_error is None else f" +- {score.standard_error:.4f}"
    lines = [
        f"  accuracy    {score.value:.4f}{error}  (seeds: {', '.join(f'{a:.4f}' for a in details['accuracies'])})",
        f"  worst class {details['worst_class_accuracy']:.4f}  ({printable(details['worst_class'])})",
        f"  agreement   {details['agreement']:.4f}  "
        f"(with the release's {details['agreement_with']}, on held-out images)",
    ]
    if not details["test_split"]:
        lines.append("Judged on the training records themselves: there is no test split.")
    return "\n".join(lines)


def _schedule(arch: str, schedule: str, loss: Loss | None, temperature: float | None, *, long: bool) -> Schedule:
    changes: dict[str, Any] = {} if loss is None else {"loss": loss}
    if temperature is not None:
        changes["temperature"] = temperature
    if schedule == "paper":
        settings = Schedule.paper(arch, **changes)
    else:
        settings = Schedule.short(arch, soft=long, **changes)
    if temperature is not None and settings.loss != "kl":
        raise UsageError("Expected a temperature with the loss kl alone.", fix="add --loss kl, or leave it out")
    return settings


def _split(images: Images) -> tuple[Images, Images]:
    """The images that the student is trained on, and released images that are held out."""
    count = min(MOST_HELD_OUT, len(images) // HELD_OUT)
    if not count:
        raise DataError(
            f"Expected a release of at least {HELD_OUT} images, got {len(images)}.",
            fix="make more by `sfumato resample`",
        )
    return set_aside(images, count)


def _network_images(release: Release) -> Images:
    if release.images.network is None:
        raise UsageError(
            "Expected a release with logits for a public network, got one without.",
            where=release.path,
            fix="choose another --arch, or make the release with --set network=efficientnet-lite0",
        )
    return release.images.network


def _features(arch: str, training: Images) -> nn.Module:
    """What a linear student sees."""
    channels, height, width = training.pixels.shape[1:]
    if arch == FEATURES:
        return named_features(training.seen_through or "", (channels, height, width))
    if min(height, width) < SMALLEST:
        raise UsageError(
            f"Expected images of at least {SMALLEST} pixels for the student {arch}, got {height} x {width}.",
            fix="choose another --arch",
        )
    return PhotographFeatures(channels, height, width)


def _score(
    settings: Schedule | nn.Module,
    training: Images,
    kept: Images,
    real: Reference,
    seeds: tuple[int, ...],
    arch: str,
    asked: dict[str, str],
) -> Score:
    """The score of students that are trained by a schedule, or of the one that is fitted to features."""
    held_out = comparable(training, real)
    tests = (held_out.pixels, kept.pixels)
    loss: str
    if isinstance(settings, Schedule):
        loss, epochs = settings.loss_for(training), settings.epochs(training)
        found = student_logits(training, {arch: settings}, tests, seeds=seeds, what="student")
        on_real, on_kept = (logits[arch] for logits in found)
    else:
        loss, epochs, seeds = "least squares", 1.0, (0,)
        student = fit_linear_student(training, settings, what="student")
        on_real, on_kept = ([outputs(student, pixels)] for pixels in tests)
    released = released_labels(kept)
    answers = [logits.argmax(1) for logits in on_real]
    agreements = [(logits.argmax(1) == released).double().mean().item() for logits in on_kept]
    details = {
        "agreement": sum(agreements) / len(agreements),
        "agreements": agreements,
        "agreement_with": "labels" if kept.logits is None else "logits",
        "kept_from_the_student": len(kept),
        "arch": arch,
        **asked,
        "loss": loss,
        "epochs": epochs,
        "test_split": real.test is not None,
    }
    return accuracy(f"student-{arch}", answers, held_out, seeds=seeds, details=details)


def _table(path: Path, score: Score) -> str:
    """The table so far with one more row; runs are added, never replaced, so none can be left out."""
    details = score.details
    error = "" if score.standard_error is None else f"{score.standard_error:.4f}"
    worst = f"{details['worst_class_accuracy']:.4f}"
    judged = "test split" if details["test_split"] else "training records: there is no test split"
    trained_on = details["loss"] if details["subset"] == "by default" else f"{details['loss']} ({details['subset']})"
    cells = (
        details["arch"],
        details["schedule"],
        trained_on,
        f"{details['epochs']:.3g}",
        len(score.seeds),
        f"{score.value:.4f}",
        error,
        worst,
        f"{details['agreement']:.4f}",
        judged,
    )
    before = path.read_text("utf-8") if path.exists() else "\n".join([NOTICE, *HEAD, ""])
    return before + "| " + " | ".join(map(str, cells)) + " |\n"
