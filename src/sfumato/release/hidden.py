"""Write a release of images with a hidden attribute, and read it back once its sums hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import UsageError
from sfumato.release import layout
from sfumato.release.card import render_card
from sfumato.release.closed import LARGEST
from sfumato.release.hidden_facts import HiddenFacts, read_hidden_facts
from sfumato.release.new_folder import new_folder, write_file
from sfumato.release.preview import draw_hidden_preview
from sfumato.release.sums import refuse_changed
from sfumato.release.tables import Table, array, read_table, write_table
from sfumato.values import Attributed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HiddenRelease:
    """A release of images with a hidden attribute as read back from its folder; the images have the kept labels."""

    path: Path
    facts: HiddenFacts
    images: Attributed


def write_hidden(folder: Path | str, images: Attributed, facts: HiddenFacts) -> Path:
    """Write images and facts as a release folder; the bytes depend on nothing else."""
    target = Path(folder).absolute()
    table = _table(images, facts)
    text = facts.to_json().encode()
    if len(text) > LARGEST:
        raise UsageError(f"Expected facts of at most {LARGEST} bytes, got {len(text)}.", fix="keep fewer labels")
    with new_folder(target) as work:
        write_table(work, facts.subset, table)
        write_file(work / layout.HIDDEN, text)
        write_file(work / layout.CARD, render_card(facts).encode())
        write_file(work / layout.PREVIEW, draw_hidden_preview(table.pixels, facts))
    return target


def read_hidden(folder: Path | str) -> HiddenRelease:
    """The release in a folder; a folder that differs from its sums is refused."""
    import torch

    path = Path(folder)
    refuse_changed(path)
    if not layout.holds_hidden_images(path):
        raise UsageError(
            "Expected a release of images with a hidden attribute, got another.",
            where=path,
            fix="name a folder that `sfumato hide` wrote",
        )
    facts = read_hidden_facts(path)
    subset = facts.subset
    pixels, labels, _ = read_table(path, subset)
    attributes = {name: torch.from_numpy(values) for name, values in labels.items()}
    return HiddenRelease(path, facts, Attributed(torch.from_numpy(pixels), attributes, dict(subset.labels)))


def _table(images: Attributed, facts: HiddenFacts) -> Table:
    """The images as arrays, after they were compared with the facts."""
    if facts.hidden in images.attributes:
        raise UsageError(
            f"Expected images without the hidden attribute {facts.hidden}, got it among their labels.",
            fix="give the labels that are to be released, and no others",
        )
    subset = facts.subset
    pixels = array(images.pixels, "uint8")
    compared: list[tuple[str, Any, Any]] = [
        ("images", subset.count, len(pixels)),
        ("images of shape", subset.shape, pixels.shape[1:]),
        ("labels", sorted(subset.labels), sorted(images.attributes)),
        ("classes", subset.labels, {name: tuple(images.classes[name]) for name in images.attributes}),
    ]
    for name, expected, got in compared:
        if expected != got:
            raise UsageError(f"Expected {name} {expected} as in the facts, got {got}.")
    labels = {name: array(images.attributes[name], "int64") for name in subset.labels}
    for name, values in labels.items():
        _check_labels(name, values, subset.count, len(subset.labels[name]))
    return Table(pixels, labels)


def _check_labels(name: str, values: NDArray[np.int64], count: int, classes: int) -> None:
    if values.shape != (count,):
        raise UsageError(f"Expected a value of {name} for each of {count} images, got shape {values.shape}.")
    if values.min() < 0 or values.max() >= classes:
        raise UsageError(
            f"Expected values of {name} in 0..{classes - 1}, got {values.min()}..{values.max()}.",
            fix="leave out the images of which it is not known",
        )
