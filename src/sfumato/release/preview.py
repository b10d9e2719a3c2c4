"""The picture of a release: one row per class, drawn from the synthetic images alone."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from sfumato.errors import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.release.certificate import Certificate

ROWS, COLUMNS = 10, 12
SIDE = 64  # pixels of a cell, roughly
GAP, MARGIN = 3, 18
INK, FAINT, PAPER, ALARM = (32, 34, 40), (120, 124, 132), (255, 255, 255), (190, 24, 30)


def draw_preview(pixels: NDArray[np.uint8], labels: NDArray[np.int64], certificate: Certificate) -> bytes:
    """Up to 10 classes with up to 12 images each, as PNG bytes."""
    classes = certificate.public.classes
    shown = range(min(ROWS, len(classes)))
    title, names = ImageFont.load_default(17), ImageFont.load_default(14)
    height, width = _cell(pixels.shape[2], pixels.shape[3])
    captions = [_short(classes[c], names, 150) for c in shown]
    left = MARGIN + int(max(names.getlength(text) for text in captions)) + 12
    banner = 0 if certificate.certified else 36
    top = banner + MARGIN + 46
    heading, detail = _heading(certificate)
    grid = COLUMNS * (width + GAP) - GAP
    full = max(left + grid, MARGIN + int(max(title.getlength(heading), names.getlength(detail)))) + MARGIN
    canvas = Image.new("RGB", (full, top + len(shown) * (height + GAP) - GAP + MARGIN), PAPER)
    pen = ImageDraw.Draw(canvas)
    if banner:
        pen.rectangle((0, 0, full, banner), fill=ALARM)
        pen.text((MARGIN, banner // 2), "NOT PRIVATE: this release carries no guarantee", PAPER, title, anchor="lm")
    pen.text((MARGIN, banner + MARGIN), heading, INK, title, anchor="lt")
    pen.text((MARGIN, banner + MARGIN + 24), detail, FAINT, names, anchor="lt")
    for row, caption in zip(shown, captions, strict=True):
        y = top + row * (height + GAP)
        pen.text((left - 12, y + height // 2), caption, INK, names, anchor="rm")
        for column, index in enumerate((labels == row).nonzero()[0][:COLUMNS]):
            canvas.paste(_picture(pixels[index], height, width), (left + column * (width + GAP), y))
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG", compress_level=9)
    return buffer.getvalue()


def _heading(certificate: Certificate) -> tuple[str, str]:
    guarantee = certificate.guarantee
    public = certificate.public
    count = certificate.samples.count
    claim = f"epsilon {guarantee.epsilon:.3g}, delta {guarantee.delta:.2g}" if certificate.certified else "no guarantee"
    classes = len(public.classes)
    some = f", the first {ROWS} of {classes} classes" if classes > ROWS else ""
    heading = f"Synthetic images by {printable(certificate.method.name)}: {claim}"
    return heading, f"{count:,} images of {public.height} x {public.width} pixels{some}"


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
