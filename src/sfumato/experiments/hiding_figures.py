"""The figures of a comparison of hiders: privacy against utility, and the same faces as each method made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sfumato.experiments.hiding_format import REAL
from sfumato.experiments.hiding_table import CLS, REGIMES, Document
from sfumato.lab.pictures import ALARM, INK, save_figure, save_picture

MARKERS = {"g": "o", "v+g": "s", "tr+v+g": "^"}  # of the parts that judges are trained on
REAL_COLOUR = "black"
ACROSS, DOWN = 4.6, 3.5  # inches of a panel
SIDE, GAP, HEAD, LABEL = 64, 3, 26, 120  # pixels


class _Point(NamedTuple):
    by: str
    parts: str
    x: float
    y: float
    x_error: float
    y_error: float
    reported: bool


def draw_scatter(made: Document, path: Path) -> None:
    """A row for each setup and choice of faces, a panel for each kept attribute; nothing before the first result."""
    rows = {place: sections for place, sections in _by_place(made).items() if any(map(_is_measured, sections))}
    if not rows:
        return
    keep, hidden = made["keep"], made["hiding"]
    colours = _colours(made)
    figure = Figure(figsize=(ACROSS * max(2, len(keep)), DOWN * len(rows) + 1.3), layout="constrained")
    panels = figure.subplots(len(rows), len(keep), squeeze=False)
    for line, (place, sections) in zip(panels, rows.items(), strict=True):
        for axes, name in zip(line, keep, strict=True):
            for section in sections:
                for point in _points(section, name):
                    _mark(axes, point, colours[point.by])
            for rate in _majorities(sections):
                axes.axvline(rate, color="grey", linewidth=0.9, linestyle=":", zorder=0)
            axes.set_xlabel(f"accuracy of {hidden} (CLS), %: lower hides more", fontsize="small")
            axes.set_ylabel(f"accuracy of {name}, %", fontsize="small")
            axes.tick_params(labelsize="small")
        line[0].set_title(place, fontsize="medium", loc="left")
    handles = _legend(made, colours)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize="small")
    figure.suptitle(f"{made['title']} (lab only)", color=ALARM)
    save_figure(figure, path)


def _by_place(made: Document) -> dict[str, list[Document]]:
    """The sections that differ by their parts alone are drawn into one panel."""
    found: dict[str, list[Document]] = {}
    for section in made["sections"]:
        place = f"{section['setup']}: {section['release']}, {REGIMES[section['front']]}"
        found.setdefault(place, []).append(section)
    return found


def _is_measured(section: Document) -> bool:
    return any(row["measured"][CLS] is not None for row in section["rows"])


def _points(section: Document, name: str) -> Iterator[_Point]:
    parts = section["parts"]
    for row in section["rows"]:
        x, y = row["measured"][CLS], row["keep"][name]
        if x is not None and y is not None:
            x_error, y_error = (100 * (score["standard_error"] or 0.0) for score in (x, y))
            yield _Point(row["by"], parts, 100 * x["value"], 100 * y["value"], x_error, y_error, reported=False)
    for table in section["reported"]:
        for by, known in table["rows"].items():
            if known[CLS] is not None and known["keep"][name] is not None:
                yield _Point(by, parts, 100 * known[CLS], 100 * known["keep"][name], 0.0, 0.0, reported=True)


def _mark(axes: Axes, point: _Point, colour: str) -> None:
    axes.errorbar(
        [point.x],
        [point.y],
        xerr=[point.x_error] if point.x_error else None,
        yerr=[point.y_error] if point.y_error else None,
        color=colour,
        marker=MARKERS[point.parts],
        markersize=9 if point.by == REAL else 6,
        markerfacecolor="none" if point.reported else colour,
        linestyle="none",
        capsize=2,
    )


def _majorities(sections: list[Document]) -> list[float]:
    """Of all parts alike, because the same images are tested."""
    found = [row["measured"]["majority"] for section in sections for row in section["rows"] if row["by"] == REAL]
    return sorted({round(100 * rate["value"], 2) for rate in found if rate is not None})


def _colours(made: Document) -> dict[str, str]:
    rows = [row["by"] for section in made["sections"] for row in section["rows"]]
    rows += [by for section in made["sections"] for table in section["reported"] for by in table["rows"]]
    methods = [by for by in dict.fromkeys(rows) if by != REAL]
    return {REAL: REAL_COLOUR, **{by: f"C{number % 10}" for number, by in enumerate(methods)}}


def _legend(made: Document, colours: Mapping[str, str]) -> list[Line2D]:
    def sign(label: str, **given: Any) -> Line2D:
        return Line2D([], [], **{"linestyle": "none", "marker": "o", "color": "grey", **given, "label": label})

    parts = dict.fromkeys(section["parts"] for section in made["sections"])
    by = [sign("real images" if name == REAL else name, color=colour) for name, colour in colours.items()]
    by += [sign(f"judges trained on {name}", marker=MARKERS[name]) for name in parts]
    if any(section["reported"] for section in made["sections"]):
        by.append(sign("reported", markerfacecolor="none"))
    return [*by, sign(f"majority rate of {made['hiding']}", linestyle=":", marker="")]


def draw_faces(title: str, places: Mapping[str, Mapping[str, Tensor]], path: Path) -> None:
    """For each setup a row of real faces and one for each method; a column has the same source in all rows."""
    if not places:
        return
    blocks = [_block(place, rows) for place, rows in places.items()]
    width, height = max(block.width for block in blocks), sum(block.height for block in blocks)
    sheet = Image.new("RGB", (width, HEAD + height), "white")
    font = ImageFont.load_default(15)
    ImageDraw.Draw(sheet).text((GAP, 4), f"{title} (lab only)", fill=ALARM, font=font)
    top = HEAD
    for block in blocks:
        sheet.paste(block, (0, top))
        top += block.height
    save_picture(sheet, path)


def _block(place: str, rows: Mapping[str, Tensor]) -> Image.Image:
    count, _, height, width = next(iter(rows.values())).shape
    zoom = max(1, SIDE // max(height, width))
    down, across = height * zoom + GAP, width * zoom + GAP
    font = ImageFont.load_default(13)
    least = LABEL + round(font.getlength(place))  # so that the caption is not cut off
    block = Image.new("RGB", (max(least, LABEL + count * across), HEAD + len(rows) * down), "white")
    pen = ImageDraw.Draw(block)
    pen.text((GAP, 6), place, fill=INK, font=font)
    for line, (by, pixels) in enumerate(rows.items()):
        top = HEAD + line * down
        words, colour = ("real: private", ALARM) if by == REAL else (by, INK)
        pen.text((GAP, top + down // 2 - 8), words, fill=colour, font=font)
        for column, image in enumerate(pixels):
            large = image.repeat_interleave(zoom, 1).repeat_interleave(zoom, 2).expand(3, -1, -1)
            picture = Image.fromarray(large.permute(1, 2, 0).contiguous().numpy())
            block.paste(picture, (LABEL + column * across, top))
    return block
