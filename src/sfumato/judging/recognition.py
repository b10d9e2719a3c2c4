"""Whether the persons of a hidden release can be recognised: an attribute hidden is not a person hidden."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import EnvironmentProblem, NotApplicable
from sfumato.statistics.faces import face_codes, front_faces
from sfumato.statistics.re_identification import Matched, matched, small_grey

MOST_FACES = 500  # pairs whose codes are compared: a code takes a tenth of a second
FIRST = 8  # real images in which there has to be a face, before the codes of all are made


@dataclass(frozen=True, slots=True)
class Match:
    """How often the real image nearest to a released one is its own source."""

    share: float
    error: float
    median_rank: float  # of the source among the real images; 1 is the nearest
    images: int  # real ones to choose from
    chance: float


@dataclass(frozen=True, slots=True)
class Recognition:
    """Released images compared with the real ones that were re-generated."""

    by_pixels: Match  # of small grey images
    by_faces: Match | None  # of codes of a network that recognises people; None: left out
    why_not_by_faces: str


def recognition(released: Tensor, sources: Tensor) -> Recognition:
    """Released images and their sources, image by image: uint8 (n, c, h, w) each."""
    by_pixels = _match(matched(small_grey(released), small_grey(sources), torch.arange(len(sources))))
    try:
        return Recognition(by_pixels, _by_faces(released, sources), "")
    except (NotApplicable, EnvironmentProblem) as reason:
        return Recognition(by_pixels, None, reason.what)


def _by_faces(released: Tensor, sources: Tensor) -> Match:
    front_faces(sources[:FIRST], both="or")
    some = torch.randperm(len(sources), generator=torch.Generator().manual_seed(0))[:MOST_FACES]
    codes, real = (face_codes(pixels[some]).codes for pixels in (released, sources))
    return _match(matched(codes, real, torch.arange(len(some))))


def _match(found: Matched) -> Match:
    return Match(found.first, found.standard_error, found.median_rank, found.real, 1 / found.real)
