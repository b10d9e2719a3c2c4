"""The `predict` command: what a released classifier says of images in the clear, as a table; lab side."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sfumato import data
from sfumato.contracts import Reading
from sfumato.errors import DataError, EnvironmentProblem, UsageError, printable
from sfumato.files import written_whole
from sfumato.progress import track
from sfumato.release import read_model
from sfumato.training.student import outputs
from sfumato.values import ModelRelease

BATCH = 100  # images that the network sees together: progress is shown after so many
NOTICE = "Predictions of private images are private, too."


@dataclass(frozen=True, slots=True)
class Predictions:
    """A table of predictions: where it is, how many images are in it, and which were left out and why."""

    out: Path
    count: int
    skipped: tuple[tuple[str, str], ...]


def predict_images(model: Path | str, images: Path | str, out: Path | str, *, skip_bad: bool = False) -> Predictions:
    """Write what the classifier in the folder `model` says of each image to the new CSV file `out`.

    `images` is a folder of image files in any layout, one image, or anything else that is read as a data set; they are
    cropped, resized and converted as the readers of training data do it. A row has the file, the class, its
    probability, and the probability of every class.
    """
    out = Path(out)
    _refuse_bad_target(out, Path(model))
    release = read_model(model)
    unlabelled = _opened(images, release, skip_bad=skip_bad)
    count = 0
    try:
        with written_whole(out) as unfinished, _only_mine(unfinished).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            classes = [printable(name) for name in release.classes]
            table.writerow(["file", "label", "probability", *(f"p_{name}" for name in classes)])
            predicted = _predicted(release, unlabelled)
            for name, row in track(predicted, what="predicting", total=unlabelled.spec.count):
                best = int(row.argmax())
                written = [f"{probability:.6f}" for probability in row.tolist()]
                table.writerow([printable(name), classes[best], written[best], *written])
                count += 1
            if not count:
                raise DataError("Expected at least one readable image, got none.", where=images, fix="check the files")
    except OSError as error:
        raise EnvironmentProblem(
            f"Expected to write the table, got: {error.strerror or error}. Nothing was left behind.",
            where=out,
            fix="check free space and permissions there, or choose another file",
        ) from error
    return Predictions(out, count, tuple(unlabelled.bad))


def _refuse_bad_target(out: Path, model: Path) -> None:
    if os.path.lexists(out):
        raise UsageError(
            "Expected a new file for the table, got one that exists.", where=out, fix="choose another --out"
        )
    home = out.absolute().parent.resolve()
    if not home.is_dir():
        raise UsageError(
            "Expected a folder that exists for the table, got none.", where=out, fix="make it, or choose another --out"
        )
    if model.resolve() in (home, *home.parents):
        raise UsageError(
            "Expected a place outside of the model for the table, which is no part of it.",
            where=out,
            fix="choose another --out",
        )


def _opened(images: Path | str, release: ModelRelease, *, skip_bad: bool) -> data.Unlabelled:
    """The images as the classifier takes them."""
    channels, height, width = release.shape
    reading = Reading(
        size=height if height == width else None, mode="grey" if channels == 1 else "colour", skip_bad=skip_bad
    )
    unlabelled = data.open_unlabelled(images, reading)
    if unlabelled.spec.shape != release.shape:  # readers make squares, and no other shape
        raise DataError(
            f"Expected images of {width} x {height} pixels for this classifier, got {unlabelled.spec.width} x "
            f"{unlabelled.spec.height}.",
            where=images,
            fix="bring them to this size",
        )
    return unlabelled


def _predicted(release: ModelRelease, unlabelled: data.Unlabelled) -> Iterator[tuple[str, Tensor]]:
    """Each image's name and the probabilities of the classes."""
    for names, block in unlabelled.chunks():
        for start in range(0, len(names), BATCH):
            pixels = torch.from_numpy(block[start : start + BATCH])
            logits = outputs(release.classifier.network, pixels)  # (b, k)
            yield from zip(names[start : start + BATCH], logits.double().softmax(1), strict=True)


def _only_mine(path: Path) -> Path:
    """A new file that nobody else can read."""
    path.touch(mode=0o600, exist_ok=False)
    return path
