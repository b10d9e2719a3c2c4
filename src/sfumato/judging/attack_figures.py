"""The pictures of an attack: curves on logarithmic axes, and released images beside their nearest training images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sfumato.judging.near_duplicates import Pairs
from sfumato.lab.pictures import ALARM, INK, save_figure, save_picture
from sfumato.statistics.roc import curve

SIDE, GAP, HEAD = 64, 3, 26  # pixels
LEAST_STEP, LEAST_WIDTH = 56, 320  # pixels that the captions need


def draw_curves(scores: dict[str, tuple[Tensor, Tensor]], path: Path) -> None:
    """A curve for each attack; both axes are logarithmic, because low false positive rates matter most."""
    figure = Figure(figsize=(6.5, 6), layout="constrained")
    figure.suptitle("Attacks on the release (lab only)", color=ALARM)
    axes = figure.subplots()
    least = 1 / max(max(len(members), len(others)) for members, others in scores.values())
    axes.plot([least, 1], [least, 1], color="grey", linestyle=":", label="guessing")
    for name, sides in scores.items():
        false_positives, true_positives = curve(*sides)
        clipped = (np.clip(rates, least, 1) for rates in (false_positives, true_positives))
        axes.plot(*clipped, drawstyle="steps-post", label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(least, 1),
        ylim=(least, 1),
        aspect="equal",
        xlabel="false positive rate (others called members)",
        ylabel="true positive rate (members called members)",
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    save_figure(figure, path)


def draw_pairs(pairs: Pairs, path: Path) -> None:
    """Released images above, the training images that they are nearest to below, with their distances."""
    zoom = max(1, SIDE // max(pairs.released.shape[2:]))
    height, width = (zoom * side for side in pairs.released.shape[2:])
    step = max(width, LEAST_STEP) + GAP
    sheet = Image.new("RGB", (max(len(pairs.distances) * step, LEAST_WIDTH), 3 * HEAD + 2 * (height + GAP)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    pen.text((2, 4), "RELEASED, with distances", fill=INK, font=font)
    pen.text((2, 2 * HEAD + height + 4), "NEAREST TRAINING IMAGES: private, lab only", fill=ALARM, font=font)
    for column, distance in enumerate(pairs.distances.tolist()):
        pen.text((column * step + 2, HEAD + 4), f"{distance:.4f}", fill=INK, font=font)
        sheet.paste(_large(pairs.released[column], zoom), (column * step, 2 * HEAD))
        sheet.paste(_large(pairs.training[column], zoom), (column * step, 3 * HEAD + height))
    save_picture(sheet, path)


def _large(image: Tensor, zoom: int) -> Image.Image:
    pixels = image.repeat_interleave(zoom, 1).repeat_interleave(zoom, 2)  # (c, h, w)
    return Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
