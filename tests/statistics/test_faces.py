"""Faces by dlib: found where they are, told apart by their codes, and a clear sentence where there are none."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sfumato.discovery import installed
from sfumato.errors import DataError, EnvironmentProblem, NotApplicable
from sfumato.statistics import faces
from sfumato.statistics.faces import FrontCount, face_codes, front_counts, front_faces
from sfumato.statistics.re_identification import matched

DATA = "faces_utk128.zip"


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not loaded detector and network yet."""
    for cached in ("_detector", "_recognition"):
        monkeypatch.setattr(faces, cached, getattr(faces, cached).__wrapped__)


def dlib() -> None:
    pytest.importorskip("dlib", reason="needs the package `dlib-bin` of the extra `hide`")
    try:
        installed(faces.EXTRA, faces.WEIGHTS)
    except EnvironmentProblem:
        pytest.skip("needs the package `face_recognition_models` of the extra `hide`")


@pytest.fixture(scope="module")
def people() -> Tensor:
    """Eight real faces, 128 x 128."""
    dlib()
    folders = [Path(os.environ["SFUMATO_DEV_DATA"])] if "SFUMATO_DEV_DATA" in os.environ else []
    folders += [parent / "shared" / "data" for parent in Path(__file__).resolve().parents]
    archive = next((folder / DATA for folder in folders if (folder / DATA).is_file()), None)
    if archive is None:
        pytest.skip(f"the development data {DATA} are not on this machine (SFUMATO_DEV_DATA)")
    with zipfile.ZipFile(archive) as opened:
        names = sorted(name for name in opened.namelist() if name.endswith(".jpg"))[:8]
        images = [np.array(Image.open(io.BytesIO(opened.read(name))).convert("RGB")) for name in names]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def noise(count: int, *shape: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *shape), generator=draw, dtype=torch.uint8)


def test_faces_are_found_and_noise_is_none(people: Tensor) -> None:
    mixed = torch.cat([people, noise(3, 3, 128, 128)])
    front = front_faces(mixed)
    assert front.dtype == torch.bool
    assert front.tolist() == [True] * 8 + [False] * 3


def test_a_small_face_is_found_at_the_second_size_alone(people: Tensor) -> None:
    """At 48 pixels no face fills the 80 that the detector looks for."""
    small = torch.nn.functional.avg_pool2d(people.float(), 3, padding=1, ceil_mode=True).round().to(torch.uint8)
    assert small.shape[2] < 50
    assert front_faces(small, both="or").sum() >= 6
    with pytest.raises(NotApplicable, match="none of which"):
        front_faces(small, both="and")


@pytest.mark.parametrize("both", ["and", "or"])
def test_images_without_faces_are_one_clear_sentence(both: str) -> None:
    dlib()
    with pytest.raises(NotApplicable, match="got 3 in none of which dlib finds a face"):
        front_faces(noise(3, 1, 28, 28), both=both)


@pytest.mark.parametrize("pixels", [noise(2, 4, 32, 32), noise(0, 3, 32, 32)])
def test_images_that_dlib_cannot_see_are_refused(pixels: Tensor) -> None:
    dlib()
    for judge in (front_faces, face_codes):
        with pytest.raises(NotApplicable, match="Expected images of 1 or 3 channels"):
            judge(pixels)


def test_front_faces_of_parts_are_counted_by_numbers_and_by_masks() -> None:
    front = torch.tensor([True, False, True, True, False])
    parts = {"tr": torch.tensor([0, 1, 2]), "test": torch.tensor([False, False, False, True, True])}
    assert front_counts(front, parts) == {"tr": FrontCount(2, 3), "test": FrontCount(1, 2)}
    assert front_counts(front, {"v": torch.zeros(0, dtype=torch.int64)}) == {"v": FrontCount(0, 0)}


def test_codes_lead_from_a_changed_face_to_the_person(people: Tensor) -> None:
    """A mirrored and darker face is no near copy of its pixels, and still the same person."""
    real = face_codes(people)
    assert real.codes.shape == (8, 128)
    assert real.codes.dtype == torch.float32
    assert real.detected.all()
    changed = face_codes((people.flip(3).float() * 0.7).to(torch.uint8))
    assert matched(changed.codes, real.codes, torch.arange(8)).first == 1
    to_self = (changed.codes - real.codes).norm(dim=1)
    assert to_self.max() < 0.6


def test_codes_are_repeated_and_do_not_depend_on_other_images(people: Tensor) -> None:
    both, alone = face_codes(people[:2]), face_codes(people[1:2])
    assert torch.equal(both.codes[1:], alone.codes)


def test_an_image_without_a_face_has_a_code_and_is_counted(people: Tensor) -> None:
    found = face_codes(torch.cat([people[:1], noise(1, 3, 128, 128)]))
    assert found.detected.tolist() == [True, False]
    assert found.codes.isfinite().all()


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("package", ["dlib", "face_recognition_models"])
def test_a_missing_package_is_named_with_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for judge in (front_faces, face_codes):
        with pytest.raises(EnvironmentProblem, match=rf"no {package}[\s\S]*sfumato\[hide\]"):
            judge(noise(1, 3, 32, 32))


@pytest.mark.usefixtures("unloaded")
def test_other_weights_than_the_published_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dlib()
    monkeypatch.setattr(faces, "RECOGNITION", faces.LANDMARKS)
    with pytest.raises(DataError, match="Expected weights with SHA-256"):
        face_codes(noise(1, 3, 32, 32))
