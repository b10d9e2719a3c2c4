"""Whether the persons of a hidden release can be recognised: an attribute hidden is not a person hidden."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import EnvironmentProblem, NotApplicable
from sfumato.statistics.faces import face_codes, front_faces
from sfumato.statistics.re_identification import matched, small_grey

MOST_FACES = 500  # pairs whose codes are compared: a code takes a tenth of a second
FIRST = 64  # real images in which there has to be a face, before the codes of all are made


@dataclass(frozen=True, slots=True)
class Match:
    """How often the real image nearest to a released one is its own source, or of the same person."""

    share: float
    error: float
    median_rank: float  # of the source, or of the nearest image of the same person; 1 is the nearest
    images: int  # real ones to choose from
    chance: float
    by_person: bool  # any image of the same person counts; else the source alone, as who is on the images is not known


@dataclass(frozen=True, slots=True)
class Recognition:
    """Released images compared with the real ones that were re-generated."""

    by_pixels: Match  # of small grey images
    by_faces: Match | None  # of codes of a network that recognises people; None: left out
    why_not_by_faces: str


def recognition(released: Tensor, sources: Tensor, people: Tensor | None = None) -> Recognition:
    """Released images and their sources, image by image: uint8 (n, c, h, w) each; `people`: who is on them, (n,)."""
    by_pixels = _match(small_grey(released), small_grey(sources), people)
    try:
        return Recognition(by_pixels, _by_faces(released, sources, people), "")
    except (NotApplicable, EnvironmentProblem) as reason:
        return Recognition(by_pixels, None, reason.what)


def _by_faces(released: Tensor, sources: Tensor, people: Tensor | None) -> Match:
    front_faces(sources[:FIRST], both="or")
    some = torch.randperm(len(sources), generator=torch.Generator().manual_seed(0))[:MOST_FACES]
    codes, real = (face_codes(pixels[some]).codes for pixels in (released, sources))
    return _match(codes, real, None if people is None else people[some])


def _match(released: Tensor, real: Tensor, people: Tensor | None) -> Match:
    return Match(*matched(released, real, torch.arange(len(real)), people), by_person=people is not None)
