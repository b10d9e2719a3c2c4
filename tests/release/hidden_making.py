"""A small release of images with a hidden attribute, and what an attacker can do to its facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.release import HiddenFacts, HidingMethod, ImageFacts
from sfumato.release.card import render_card
from sfumato.release.hidden_facts import parse_hidden_facts
from sfumato.values import Attributed

WEIGHTS = f"stable-diffusion-v1-5, SHA-256 {'0123456789abcdef' * 4}"
CLASSES = {"gender": ("female", "male"), "age": ("0-9", "10-19", "../../20+")}


def make_faces(*, count: int = 30, channels: int = 3, side: int = 8, seed: int = 7) -> Attributed:
    """Noise with two labels, in another order than that of their names."""
    draw = np.random.default_rng(seed)
    pixels = torch.from_numpy(draw.integers(0, 256, (count, channels, side, side), dtype=np.uint8))
    labels = {name: torch.from_numpy(draw.integers(0, len(of), count)) for name, of in CLASSES.items()}
    return Attributed(pixels, labels, CLASSES)


def make_facts(images: Attributed, **changes: Any) -> HiddenFacts:
    count, channels, height, width = images.pixels.shape
    values: dict[str, Any] = {
        "hidden": "race",
        "values": ("white", "black", "asian", "indian", "others"),
        "method": HidingMethod(
            name="transport", package_version="0.1.0", hyperparameters={"codes": 64, "strength": 0.8, "seed": 0}
        ),
        "weights": None,
        "images": ImageFacts(count=count, channels=channels, height=height, width=width),
        "labels": {name: tuple(images.classes[name]) for name in images.attributes},
    }
    return HiddenFacts(**{**values, **changes})


def edit_facts(folder: Path, change: Callable[[dict[str, Any]], object], *, card: bool = False) -> None:
    """Edit hidden.json, and write the card of the new facts if they are facts."""
    path = folder / "hidden.json"
    values = json.loads(path.read_text("utf-8"))
    change(values)
    path.write_text(json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False) + "\n", "utf-8")
    if card:
        (folder / "README.md").write_text(render_card(parse_hidden_facts(path.read_bytes())), "utf-8")
