"""A small data set on disk with three attributes, and a release of it that hides one, with its lab."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from judging.shapes import CLASSES, shapes
from sfumato.contracts import Reading
from sfumato.data import load_attributed
from sfumato.lab.folder import Lab
from sfumato.lab.provenance import PARTS, Provenance, fingerprint
from sfumato.making.parts import split_parts
from sfumato.release import HiddenFacts, HidingMethod, ImageFacts, write_hidden
from sfumato.values import Attributed

HIDDEN, NAMES = "colour", tuple(CLASSES)


def on_disk(folder: Path, count: int = 240) -> Path:
    """The pictures as files, with a table of their attributes."""
    images = shapes(count)
    folder.mkdir()
    with (folder / "attributes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", *NAMES])
        for at, pixels in enumerate(images.pixels):
            Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(folder / f"{at:04}.png")
            writer.writerow([f"{at:04}.png", *(CLASSES[n][int(images.attributes[n][at])] for n in NAMES)])
    return folder


def copied(images: Attributed) -> Tensor:
    return images.pixels


def hidden_release(
    folder: Path,
    data: Path,
    *,
    parts: tuple[str, ...] = ("v", "g"),
    shares: tuple[float, ...] = (20, 20, 40, 20),
    made: Callable[[Attributed], Tensor] = copied,
    head: bool = True,
    reading: Reading = Reading(),  # noqa: B008 - frozen, so shared safely
) -> Path:
    """What `hide` writes, by a method that makes `made` of the real images; its head always knows the attribute."""
    images = load_attributed(data, NAMES, reading)
    part_of = split_parts(images.attributes[HIDDEN], shares=shares)
    sources = torch.isin(part_of, torch.tensor([PARTS.index(part) for part in parts])).nonzero()[:, 0]
    chosen = images.rows(sources)
    kept = tuple(name for name in NAMES if name != HIDDEN)
    released = Attributed(
        made(chosen), {name: chosen.attributes[name] for name in kept}, {name: chosen.classes[name] for name in kept}
    )
    side = released.pixels.shape[2]
    facts = HiddenFacts(
        hidden=HIDDEN,
        values=images.classes[HIDDEN],
        method=HidingMethod(name="copy", package_version="0", hyperparameters={}),
        weights=None,
        images=ImageFacts(count=len(released), channels=released.pixels.shape[1], height=side, width=side),
        labels=dict(released.classes),
    )
    write_hidden(folder, released, facts)
    told = torch.nn.functional.one_hot(chosen.attributes[HIDDEN], 3).float() if head else None
    provenance = Provenance(HIDDEN, NAMES, None, part_of, sources, None, fingerprint(images))
    trained = images.rows(part_of == PARTS.index("tr")).labelled(HIDDEN)
    with Lab.beside(folder) as lab:
        provenance.with_head(told, trained, images.classes[HIDDEN], tr_trained=True).write(lab)
    return folder
