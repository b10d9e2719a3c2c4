"""What dlib (King 2009) sees in images: faces from the front, and codes that tell people apart."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from sfumato.discovery import installed
from sfumato.errors import NotApplicable
from sfumato.networks.published_weights import published_content
from sfumato.progress import track

EXTRA, DLIB = "hide", "dlib"
WEIGHTS = "face_recognition_models"  # the package that holds them; never imported, because it needs pkg_resources
LANDMARKS = "shape_predictor_5_face_landmarks.dat"
LANDMARKS_SHA256 = "c4b1e9804792707d3a405c2c16a80a20269e6675021f64a41d30fffafbc41888"
RECOGNITION = "dlib_face_recognition_resnet_model_v1.dat"
RECOGNITION_SHA256 = "55533b28a95800a551ba546ba62fe69625c7e95a7061c338adffead08719da30"

FRONT_SIDE = 128  # the second size at which the detector looks for a face
CODE_SIDE = 256  # of the images that codes are made from: the detector finds few faces below 80 pixels
CHIP_SIDE, CHIP_MARGIN = 150, 0.25  # of the aligned faces that the network was trained on

Picture = NDArray[np.uint8]  # (h, w, 3), as dlib takes it


class FrontCount(NamedTuple):
    """How many images of a part show a face from the front, of how many."""

    front: int
    images: int


class FaceCodes(NamedTuple):
    """Codes of faces: those of one person are alike."""

    codes: Tensor  # float32 (n, 128); two images of one person lie within 0.6 of each other, as a rule
    detected: Tensor  # bool (n,): a face was found; elsewhere the whole image was taken for the face


def front_faces(pixels: Tensor, *, both: Literal["and", "or"] = "and") -> Tensor:
    """Which images show a face from the front, at their own size and (or) at 128 x 128; bool (n,)."""
    detect = _detector()
    sizes = [_shown(pixels)]
    if pixels.shape[2:] != (FRONT_SIDE, FRONT_SIDE):
        sizes.append(_shown(pixels, FRONT_SIDE))
    pictures = (picture for size in sizes for picture in size)
    found = [len(detect(picture, 0)) > 0 for picture in track(pictures, what="front faces", total=sum(map(len, sizes)))]
    seen = torch.tensor(found).reshape(len(sizes), len(pixels))
    front = seen.all(0) if both == "and" else seen.any(0)
    if not front.any():
        raise NotApplicable(
            f"Expected images of faces, got {len(pixels)} in none of which dlib finds a face from the front.",
            fix="take all images, or give images of faces of 80 pixels or more",
        )
    return front


def front_counts(front: Tensor, parts: Mapping[str, Tensor]) -> dict[str, FrontCount]:
    """How many images of each part `front_faces` found; a part is the numbers of its images, or a mask."""
    return {name: FrontCount(int(front[rows].sum()), len(front[rows])) for name, rows in parts.items()}


def face_codes(pixels: Tensor) -> FaceCodes:
    """Codes by dlib's face recognition network, which takes about a tenth of a second of one core for each image."""
    detect, landmarks, network = _detector(), *_recognition()
    import dlib

    whole = dlib.rectangle(0, 0, CODE_SIDE - 1, CODE_SIDE - 1)
    codes, detected = [], []
    for image in track(torch.split(pixels, 1), what="face codes", total=len(pixels)):
        (picture,) = _shown(image, CODE_SIDE)
        faces = detect(picture, 0)
        face = max(faces, key=lambda box: box.area(), default=whole)
        chip = dlib.get_face_chip(picture, landmarks(picture, face), size=CHIP_SIDE, padding=CHIP_MARGIN)
        codes.append(torch.tensor(np.array(network.compute_face_descriptor(chip)), dtype=torch.float32))
        detected.append(len(faces) > 0)
    return FaceCodes(torch.stack(codes), torch.tensor(detected))


def _shown(pixels: Tensor, side: int | None = None) -> list[Picture]:
    """Images (n, c, h, w) as dlib takes them, at their own size or as squares."""
    if not len(pixels) or pixels.shape[1] not in (1, 3):
        raise NotApplicable(
            f"Expected images of 1 or 3 channels, got {len(pixels)} of shape {tuple(pixels.shape[1:])}."
        )
    if side is not None and pixels.shape[2:] != (side, side):
        larger = F.interpolate(pixels.float(), size=(side, side), mode="bilinear", antialias=True)
        pixels = larger.round().clamp(0, 255).to(torch.uint8)
    return [np.ascontiguousarray(picture) for picture in pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()]


@functools.cache
def _detector() -> Any:
    installed(EXTRA, DLIB, WEIGHTS)
    import dlib

    return dlib.get_frontal_face_detector()


@functools.cache
def _recognition() -> tuple[Any, Any]:
    """What finds the corners of eyes and the nose in a face, and the network that codes an aligned one."""
    _, package = installed(EXTRA, DLIB, WEIGHTS)
    import dlib

    landmarks, network = package / "models" / LANDMARKS, package / "models" / RECOGNITION
    published_content(landmarks, LANDMARKS_SHA256)  # dlib reads the files itself
    published_content(network, RECOGNITION_SHA256)
    return dlib.shape_predictor(str(landmarks)), dlib.face_recognition_model_v1(str(network))
