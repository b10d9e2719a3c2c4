"""Where the images of a hidden release come from: which real record each was made of, and what trained the hider."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import DataError, UsageError
from sfumato.lab.folder import Lab

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.values import Attributed, Images

PARTS = ("tr", "v", "g", "test")  # trains the hider, stops it, is only re-generated, tests what is released
FACTS, TENSORS = "provenance.json", "provenance.safetensors"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The real side of a hidden release; lab material."""

    attribute: str  # that is hidden
    names: tuple[str, ...]  # all attributes that were read, in the order in which they were asked for
    person: str | None  # the attribute that told persons apart
    parts: Tensor  # int64 (n,): of each record read, a place in PARTS; -1: in none
    sources: Tensor  # int64 (m,): of each released image, the number of the record that it was made of
    told: Tensor | None  # float32 (m, k): what the method's own trained head says of the attribute; None: it has none
    fingerprint: str  # of the records that were read
    head_learnt: Tensor | None = None  # int64 (c,): images of each class that trained the hider; None: not known
    tr_trained: bool = True  # the records of the part tr did, or may have; else other data sets alone

    def released(self, parts: tuple[str, ...]) -> Tensor:
        """Which released images were made of records of these parts: bool (m,)."""
        import torch

        wanted = torch.tensor([PARTS.index(part) for part in parts])
        return torch.isin(self.parts[self.sources], wanted)

    def with_head(
        self, told: Tensor | None, trained: Images, classes: tuple[str, ...], *, tr_trained: bool
    ) -> Provenance:
        """What the method's head tells, and the images that it was `trained` on, counted by the classes of this data.

        Their classes may be fewer: those of which there is an image.
        """
        import torch

        places = torch.tensor([classes.index(name) for name in trained.classes])
        counts = places[trained.labels].bincount(minlength=len(classes))
        return replace(self, told=told, head_learnt=counts, tr_trained=tr_trained)

    def write(self, lab: Lab) -> None:
        from safetensors.torch import save

        tensors = {"parts": self.parts, "sources": self.sources}
        if self.told is not None:
            tensors["told"] = self.told.contiguous()
        if self.head_learnt is not None:
            tensors["head_learnt"] = self.head_learnt
        lab.write(TENSORS, save(tensors))
        facts = {
            "attribute": self.attribute,
            "names": self.names,
            "person": self.person,
            "fingerprint": self.fingerprint,
            "tr_trained": self.tr_trained,
        }
        lab.write(FACTS, json.dumps(facts, indent=2) + "\n")

    def check(self, images: Attributed) -> None:
        """Refuse other records than those that the release was made from."""
        if fingerprint(images) != self.fingerprint:
            raise UsageError(
                "Expected the images that the release was made from, got others.",
                fix="give the data that `hide` was given, with the same --size and --mode",
            )


def read_provenance(lab: Path) -> Provenance:
    """What `hide` wrote into the lab of a release."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        facts: dict[str, Any] = json.loads((lab / FACTS).read_text("utf-8"))
        tensors = load((lab / TENSORS).read_bytes())
        return Provenance(
            facts["attribute"],
            tuple(facts["names"]),
            facts["person"],
            tensors["parts"],
            tensors["sources"],
            tensors.get("told"),
            facts["fingerprint"],
            tensors.get("head_learnt"),  # a lab of an earlier version has none
            facts.get("tr_trained", True),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            "Expected the lab folder that `hide` wrote beside the release, got none that can be read.",
            where=lab,
            fix="keep FOLDER.lab beside FOLDER; who received the release alone cannot compare it with real images",
        ) from error


def fingerprint(images: Attributed) -> str:
    """The same for the same records with the same attributes in the same order."""
    seen = hashlib.sha256(images.pixels.numpy().tobytes())
    for name in sorted(images.attributes):
        seen.update(f"{name}:{images.classes[name]}".encode())
        seen.update(images.attributes[name].numpy().tobytes())
    return seen.hexdigest()
