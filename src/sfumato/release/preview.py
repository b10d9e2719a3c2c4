"""The picture of a release, drawn from the released images alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from sfumato.errors import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.release.certificate import Certificate
    from sfumato.release.hidden_facts import HiddenFacts

ROWS, COLUMNS = 10, 12
SIDE = 64  # pixels of a cell, roughly
GAP, MARGIN = 3, 18
INK, FAINT, PAPER, ALARM = (32, 34, 40), (120, 124, 132), (255, 255, 255), (190, 24, 30)
EMPIRICAL = (138, 75, 0)  # the colour of the banner where nothing is proved


class _Words(NamedTuple):
    """What stands above the pictures."""

    heading: str
    detail: str
    banner: str = ""  # white on `colour`, at the top
    colour: tuple[int, int, int] = ALARM


def draw_preview(pixels: NDArray[np.uint8], labels: NDArray[np.int64], certificate: Certificate) -> bytes:
    """Up to 10 classes with up to 12 images each, as PNG bytes."""
    classes = certificate.public.classes
    rows = [
        (classes[row], list(pixels[(labels == row).nonzero()[0][:COLUMNS]])) for row in range(min(ROWS, len(classes)))
    ]
    return _draw(rows, _cell(pixels.shape[2], pixels.shape[3]), _words(certificate))


def draw_hidden_preview(pixels: NDArray[np.uint8], facts: HiddenFacts) -> bytes:
    """The first 10 rows of 12 images as they come, as PNG bytes."""
    size = facts.images
    words = _Words(
        f"Images with {printable(facts.hidden)} hidden by {printable(facts.method.name)}",
        f"{size.count:,} images of {size.height} x {size.width} pixels; people may still be recognised",
        "NO GUARANTEE: attribute hidden is measured, not proved",
        EMPIRICAL,
    )
    shown = pixels[: ROWS * COLUMNS]
    rows = [("", list(shown[start : start + COLUMNS])) for start in range(0, len(shown), COLUMNS)]
    return _draw(rows, _cell(size.height, size.width), words)


def _draw(rows: Sequence[tuple[str, Sequence[NDArray[np.uint8]]]], cell: tuple[int, int], words: _Words) -> bytes:
    """Rows of pictures with a caption each, under their heading."""
    title, names = ImageFont.load_default(17), ImageFont.load_default(14)
    height, width = cell
    captions = [_short(caption, names, 150) for caption, _ in rows]
    longest = int(max(names.getlength(text) for text in captions))
    left = MARGIN + (longest + 12 if longest else 0)
    banner = 36 if words.banner else 0
    top = banner + MARGIN + 46
    grid = COLUMNS * (width + GAP) - GAP
    widest = max(title.getlength(words.heading), names.getlength(words.detail), title.getlength(words.banner))
    full = max(left + grid, MARGIN + int(widest)) + MARGIN
    canvas = Image.new("RGB", (full, top + len(rows) * (height + GAP) - GAP + MARGIN), PAPER)
    pen = ImageDraw.Draw(canvas)
    if words.banner:
        pen.rectangle((0, 0, full, banner), fill=words.colour)
        pen.text((MARGIN, banner // 2), words.banner, PAPER, title, anchor="lm")
    pen.text((MARGIN, banner + MARGIN), words.heading, INK, title, anchor="lt")
    pen.text((MARGIN, banner + MARGIN + 24), words.detail, FAINT, names, anchor="lt")
    for row, (caption, (_, pictures)) in enumerate(zip(captions, rows, strict=True)):
        y = top + row * (height + GAP)
        pen.text((left - 12, y + height // 2), caption, INK, names, anchor="rm")
        for column, pixels in enumerate(pictures):
            canvas.paste(_picture(pixels, height, width), (left + column * (width + GAP), y))
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG", compress_level=9)
    return buffer.getvalue()


def _words(certificate: Certificate) -> _Words:
    guarantee = certificate.guarantee
    public = certificate.public
    count = certificate.samples.count
    claim = f"epsilon {guarantee.epsilon:.3g}, delta {guarantee.delta:.2g}" if certificate.certified else "no guarantee"
    classes = len(public.classes)
    some = f", the first {ROWS} of {classes} classes" if classes > ROWS else ""
    heading = f"Synthetic images by {printable(certificate.method.name)}: {claim}"
    banner = "" if certificate.certified else "NOT PRIVATE: this release carries no guarantee"
    return _Words(heading, f"{count:,} images of {public.height} x {public.width} pixels{some}", banner)


def _cell(height: int, width: int) -> tuple[int, int]:
    """Small images grow by a whole factor, so that pixels of grey ones stay square; large ones shrink."""
    longest = max(height, width)
    if longest <= SIDE:
        factor = SIDE // longest
        return height * factor, width * factor
    return max(1, round(height * 96 / longest)), max(1, round(width * 96 / longest))


def _picture(pixels: NDArray[np.uint8], height: int, width: int) -> Image.Image:
    picture = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)).convert("RGB")
    if height < picture.height:
        return picture.resize((width, height), Image.Resampling.LANCZOS)
    # Photographs are recognised more easily without the edges of their pixels.
    smooth = pixels.shape[0] == 3
    return picture.resize((width, height), Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST)


def _short(name: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    text = printable(name)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."
