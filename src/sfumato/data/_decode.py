"""Turn the bytes of one image file into pixels, or refuse it with a short reason.

The policy, the same for every reader: EXIF rotation is applied; where a size is asked for, the image is cropped
to its central square and resized with an antialiased Lanczos filter; transparency is laid on white; palettes,
1-bit, CMYK and 16-bit grey become 8-bit grey or RGB; colour profiles are ignored. Integer and floating-point
TIFF and files with several frames are refused. A JPEG's embedded previews (MPO) are not frames.
"""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")  # by magic bytes; everything else is never parsed
LARGEST_IMAGE = 40_000_000  # pixels: a 9400 x 9400 bomb of 86 kB stays below Pillow's own limit
LARGEST_FILE = 200 * 2**20  # bytes

_ORIENTATION = 0x0112
_QUARTER_TURNS = (5, 6, 7, 8)
_GREY = ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N")
_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_REFUSED = {"I": "32-bit integer pixels", "F": "floating-point pixels"}

# Without any handler, Pillow's log messages about a hostile file would go to the user's terminal.
logging.getLogger("PIL").addHandler(logging.NullHandler())


class Unreadable(Exception):
    """Why one image cannot be read."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an image's header states, after rotation."""

    width: int
    height: int
    grey: bool


def header(stream: BinaryIO) -> Header:
    """Size and colour from the header alone; no pixel is decoded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _opened(stream) as image:
                width, height = image.size
                if _turned(image):
                    width, height = height, width
                return Header(width, height, image.mode in _GREY)
        except Exception as error:  # hostile bytes can make a decoder raise anything
            raise _unreadable(error) from error


def pixels(stream: BinaryIO, *, channels: int, size: int | None) -> NDArray[np.uint8]:
    """The decoded image, uint8 (c, h, w)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _opened(stream) as image:
                image.load()
                upright = ImageOps.exif_transpose(image)
                return as_array(squared(eight_bit(upright, channels=channels), size))
        except Exception as error:  # hostile bytes can make a decoder raise anything
            raise _unreadable(error) from error


def squared(image: Image.Image, size: int | None) -> Image.Image:
    """The central square, resized; the image itself where no size is asked for."""
    if size is None or image.size == (size, size):
        return image
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.LANCZOS)


def as_array(image: Image.Image) -> NDArray[np.uint8]:
    """An 8-bit grey or RGB image as (c, h, w)."""
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def eight_bit(image: Image.Image, *, channels: int) -> Image.Image:
    """Any accepted image as 8-bit grey (one channel) or RGB (three)."""
    if image.mode.startswith("I;16"):
        deep = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((deep * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in _ALPHA or "transparency" in image.info:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        paper.alpha_composite(layer)
        image = paper.convert("RGB")
    return image.convert("L" if channels == 1 else "RGB")


def _opened(stream: BinaryIO) -> Image.Image:
    length = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if length == 0:
        raise Unreadable("the file is empty")
    if length > LARGEST_FILE:
        raise Unreadable(f"{length // 2**20} MB is more than {LARGEST_FILE // 2**20} MB")
    image = Image.open(stream, formats=FORMATS)
    width, height = image.size
    if width < 1 or height < 1:
        raise Unreadable(f"{width} x {height} pixels")
    if width * height > LARGEST_IMAGE:
        raise Unreadable(f"{width} x {height} pixels are more than {LARGEST_IMAGE // 10**6} million")
    if image.mode in _REFUSED:
        raise Unreadable(f"{_REFUSED[image.mode]}, expected 8 or 16 bits")
    if image.format == "TIFF" and image.mode.startswith("I;16"):
        _check_deep_tiff(image)
    if _has_frames(image):
        raise Unreadable("several frames, expected one image")
    return image


def _check_deep_tiff(image: Image.Image) -> None:
    # Pillow opens 12-bit and white-is-zero data under the same mode, which would come out dark or inverted.
    tags = getattr(image, "tag_v2", {})
    if tuple(tags.get(258, ())) != (16,) or tags.get(262) != 1:
        raise Unreadable("a 12-bit or inverted grey TIFF, expected 16 bits with black as zero")


def _has_frames(image: Image.Image) -> bool:
    if image.format == "TIFF":  # seek the second page only: counting the pages of a hostile file may never end
        try:
            image.seek(1)
        except EOFError:
            return False
        return True
    return image.format != "MPO" and getattr(image, "n_frames", 1) > 1


def _turned(image: Image.Image) -> bool:
    if exif := image.info.get("exif"):
        Image.Exif().load(exif)  # raises where it is damaged; opening a JPEG may have ignored the damage
    if image.format == "TIFF":  # Pillow has already swapped the sides
        return False
    # The PNG class would decode the pixels to read what follows them, so its base class is called.
    return Image.Image.getexif(image).get(_ORIENTATION) in _QUARTER_TURNS


def _unreadable(error: Exception) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, UnidentifiedImageError):
        return Unreadable("no PNG, JPEG, WebP, BMP or TIFF image")
    if isinstance(error, Image.DecompressionBombError):
        return Unreadable(f"more than {LARGEST_IMAGE // 10**6} million pixels")
    if isinstance(error, OSError) and error.strerror:  # the machine's reason, without the path in it
        return Unreadable(error.strerror)
    return Unreadable(f"damaged ({str(error).splitlines()[0][:80] if str(error) else type(error).__name__})")
