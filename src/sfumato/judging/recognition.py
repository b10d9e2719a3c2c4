"""Whether the persons of a hidden release can be recognised: an attribute hidden is not a person hidden."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sfumato.errors import SfumatoError
from sfumato.statistics.nearest_source import nearest_source_share, small_grey


@dataclass(frozen=True, slots=True)
class Recognition:
    """How often the real face nearest to a released one, among all that were re-generated, is its own source."""

    images: int
    chance: float  # 1 / images
    by_pixels: float  # by small grey images
    by_faces: float | None  # by a network that is trained to recognise people; None: left out
    why_not_by_faces: str


def recognition(released: Tensor, sources: Tensor) -> Recognition:
    """Released images and their sources, image by image: uint8 (n, c, h, w) each."""
    by_pixels = nearest_source_share(small_grey(released), small_grey(sources))
    by_faces, why_not = None, ""
    try:
        from sfumato.statistics.faces import face_codes

        by_faces = nearest_source_share(face_codes(released).double(), face_codes(sources).double())
    except SfumatoError as reason:
        why_not = reason.what
    return Recognition(len(released), 1 / len(released), by_pixels, by_faces, why_not)


def front_of(pixels: Tensor) -> Tensor:
    """Which images show a face from the front: bool (n,)."""
    from sfumato.statistics.faces import front_faces

    return front_faces(pixels)
