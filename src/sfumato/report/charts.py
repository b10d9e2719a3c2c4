"""Charts as inline SVG: no script, no font, no network; series differ in shape as well as in colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

ROW, LABEL, PLOT, NUMBER = 26, 140, 230, 110  # pixels of a bar chart
LONGEST = 19  # characters of a label that fit there
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 300, 66, 16, 12, 48  # pixels of a plot with two axes
BESIDE = 44  # pixels on the right for what has no place on a logarithmic axis
STYLES = 8  # colours, as `.s0` to `.s7` of the page's style sheet
SHAPES = (
    '<circle r="4.5"/>',
    '<rect x="-4.2" y="-4.2" width="8.4" height="8.4"/>',
    '<path d="M0 -5.5L5.2 4H-5.2Z"/>',
    '<path d="M0 -6L5 0L0 6L-5 0Z"/>',
    '<path d="M0 5.5L5.2 -4H-5.2Z"/>',
    '<path d="M-1.7 -5.5H1.7V-1.7H5.5V1.7H1.7V5.5H-1.7V1.7H-5.5V-1.7H-1.7Z"/>',
    '<path d="M0 -5.6L5.3 -1.7L3.3 4.5H-3.3L-5.3 -1.7Z"/>',
    '<path d="M-4.8 -2.6L0 -5.6L4.8 -2.6V2.6L0 5.6L-4.8 2.6Z"/>',
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar in [0, 1] with its error; `mark` is a second value to compare it with, such as a ceiling."""

    label: str
    value: float
    error: float | None = None
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A mark; the note is shown where a mouse rests on it."""

    x: float
    y: float
    error: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together; hollow points are from the literature."""

    label: str
    points: Sequence[Point]
    style: int = 0
    hollow: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """The label and limits of an axis; an infinite value is drawn beside a logarithmic axis, with a label."""

    label: str
    log: bool = False
    low: float | None = None  # no further down than this, whatever the points are
    infinity: str = "no privacy"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a value lies, and the ticks."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]


def bars(chart: Sequence[Bar], *, mark_means: str = "", label: str = "", most: float = 1.0, digits: str = ".3f") -> str:
    """Horizontal bars on a scale from 0 to `most`."""
    axis = len(chart) * ROW
    height, width = axis + (44 if mark_means else 24), LABEL + PLOT + NUMBER
    description = label or "Bars: " + ", ".join(f"{bar.label} {bar.value:{digits}}" for bar in chart)
    spare = max(0, LABEL - 16 - 8 * max((min(len(bar.label), LONGEST) for bar in chart), default=0))
    parts = [_opened(width, height, description, spare)]
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x = LABEL + PLOT * tick
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{axis}" class="grid"/>')
        parts.append(f'<text x="{x}" y="{axis + 15}" class="tick" text-anchor="middle">{tick * most:.3g}</text>')
    for row, bar in enumerate(chart):
        parts += _drawn(bar, row * ROW, most, digits)
    if mark_means:
        parts.append(f'<line x1="{LABEL}" x2="{LABEL}" y1="{axis + 26}" y2="{axis + 40}" class="mark"/>')
        parts.append(f'<text x="{LABEL + 8}" y="{axis + 37}" class="tick">{escape(mark_means)}</text>')
    return "".join([*parts, "</svg>"])


def _drawn(bar: Bar, top: int, most: float, digits: str) -> list[str]:
    def within(value: float) -> float:
        return LABEL + PLOT * min(max(value / most, 0.0), 1.0)

    middle, end = top + ROW / 2, within(bar.value)
    short = bar.label if len(bar.label) <= LONGEST else bar.label[: LONGEST - 1] + "…"
    parts = [
        f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(short)}'
        f"{f'<title>{escape(bar.label)}</title>' if short != bar.label else ''}</text>",
        f'<rect x="{LABEL}" y="{top + 5}" width="{end - LABEL:.1f}" height="{ROW - 10}" class="bar"/>',
    ]
    shown = f"{bar.value:{digits}}"
    if bar.error is not None:
        low, high = (within(bar.value + side * bar.error) for side in (-1, 1))
        parts.append(f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" class="error"/>')
        shown += f" ± {bar.error:{digits}}"
    if bar.mark is not None:
        x = within(bar.mark)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{top + ROW - 2}" class="mark"/>')
    parts.append(f'<text x="{LABEL + PLOT + 10}" y="{middle + 4}">{shown}</text>')
    return parts


def lines(series: Sequence[Series], *, x: Axis, y: Axis, label: str) -> str:
    """Points with their errors, those of a series joined from left to right; hollow ones are not joined."""
    return _plot(series, x, y, label, joined=True)


def scatter(series: Sequence[Series], *, x: Axis, y: Axis, label: str) -> str:
    """Points with their errors."""
    return _plot(series, x, y, label, joined=False)


def legend(series: Iterable[Series]) -> str:
    """What shapes and colours stand for, each label once; as text of the page, so that it wraps on a phone."""
    known = {(one.label, one.hollow): one for one in series}
    items = (
        f'<li><svg width="16" height="16" viewBox="-8 -8 16 16" aria-hidden="true">{_mark(one)}</svg>'
        f"{escape(one.label)}</li>"
        for one in known.values()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _plot(series: Sequence[Series], x: Axis, y: Axis, label: str, *, joined: bool) -> str:
    points = [point for one in series for point in one.points]
    across = _scale([p.x for p in points], x, LEFT, WIDTH - RIGHT)
    ends = [p.y + side * (p.error or 0.0) for p in points for side in (-1, 1)]
    up = _scale(ends if not y.log else [p.y for p in points], y, HEIGHT - BOTTOM, TOP)
    parts = [_opened(WIDTH, HEIGHT, label), *_frame(across, up, x, y)]
    if joined:
        parts += [_line(one, across, up) for one in series if not one.hollow]
    for one in series:
        shape = _mark(one)
        for point in one.points:
            parts += _placed(point, one, shape, across, up)
    return "".join([*parts, "</svg>"])


def _opened(width: int, height: int, label: str, left: int = 0) -> str:
    """With nothing on the left that is not needed."""
    box = f'viewBox="{left} 0 {width - left} {height}" width="{width - left}"'
    return f'<svg {box} role="img" aria-label="{escape(label)}">'


def _mark(one: Series) -> str:
    """Beyond as many series as there are colours, a colour comes again with another shape."""
    shape = SHAPES[(one.style + one.style // STYLES) % len(SHAPES)]
    kind = "hollow" if one.hollow else "point"
    return shape.replace("/>", f' class="{kind} s{one.style % STYLES}"/>')


def _line(one: Series, across: _Scale, up: _Scale) -> str:
    ordered = sorted((p for p in one.points if math.isfinite(p.x)), key=lambda p: p.x)
    path = " ".join(f"{across.place(p.x):.1f},{up.place(p.y):.1f}" for p in ordered)
    kind = "line dashed" if one.dashed else "line"
    return f'<polyline points="{path}" class="{kind} s{one.style % STYLES}"/>' if len(ordered) > 1 else ""


def _placed(point: Point, one: Series, shape: str, across: _Scale, up: _Scale) -> list[str]:
    left, top = across.place(point.x), up.place(point.y)
    parts = []
    if point.error:
        low, high = (min(max(up.place(point.y + s * point.error), TOP), HEIGHT - BOTTOM) for s in (-1, 1))
        caps = "".join(f"M{left - 4:.1f} {end:.1f}h8" for end in (low, high))
        path = f"M{left:.1f} {low:.1f}V{high:.1f}{caps}"
        parts.append(f'<path d="{path}" class="line whisker s{one.style % STYLES}"/>')
    title = f"<title>{escape(point.note)}</title>" if point.note else ""
    parts.append(f'<g transform="translate({left:.1f} {top:.1f})">{title}{shape}</g>')
    return parts


def _frame(across: _Scale, up: _Scale, x: Axis, y: Axis) -> list[str]:
    floor, parts = HEIGHT - BOTTOM, []
    for value, text in up.ticks:
        place = up.place(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" class="tick" text-anchor="end">{text}</text>')
    for value, text in across.ticks:
        place = across.place(value)
        anchor = "end" if place > WIDTH - RIGHT - 24 and len(text) > 5 else "middle"
        at = WIDTH - RIGHT + 8 if anchor == "end" else place
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{floor}" y2="{floor + 5}" class="axis"/>')
        parts.append(f'<text x="{at:.1f}" y="{floor + 19}" class="tick" text-anchor="{anchor}">{escape(text)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}" class="axis"/>')
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>')
    half = (TOP + floor) / 2
    parts.append(f'<text transform="translate(13 {half}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>')
    return parts


def _scale(values: Iterable[float], axis: Axis, start: float, end: float) -> _Scale:
    known = list(values)
    finite = [v for v in known if math.isfinite(v) and (v > 0 or not axis.log)]
    low, high = (min(finite), max(finite)) if finite else (0.1, 1.0)
    beside = len(finite) < len(known) and axis.log
    limit = end - math.copysign(BESIDE, end - start) if beside else end
    low, high, ticks = _decades(low, high) if axis.log else _steps(low, high, axis.low)
    bend = math.log10 if axis.log else float

    def place(value: float) -> float:
        if beside and math.isinf(value):
            return end - math.copysign(10, end - start)
        share = (bend(max(value, low)) - bend(low)) / (bend(high) - bend(low))
        return start + share * (limit - start)

    return _Scale(place, (*ticks, (math.inf, axis.infinity)) if beside else tuple(ticks))


def _decades(low: float, high: float) -> tuple[float, float, list[tuple[float, str]]]:
    """Limits a little beyond the values, with ticks at powers of ten, and between them where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    low, high = low / 1.35, high * 1.35
    factors = (1, 2, 5) if len(powers) <= 3 else (1,)
    every = max(1, len(powers) // 6)
    places = [factor * 10.0**power for power in powers[::every] for factor in factors]
    within = [place for place in places if low <= place <= high]
    return low, high, [(place, _power(place)) for place in within]


def _power(value: float) -> str:
    """Far from one, a power of ten is easier to read with an exponent."""
    exponent = math.floor(math.log10(value) + 1e-9)
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = round(value / 10.0**exponent)
    return f"{value:g}" if -3 < exponent < 4 else f"{'' if factor == 1 else f'{factor}·'}10{raised}"


def _steps(low: float, high: float, floor: float | None) -> tuple[float, float, list[tuple[float, str]]]:
    """Round steps from below the smallest to above the largest."""
    spread = high - low or abs(high) or 1.0
    low, high = low - 0.06 * spread, high + 0.06 * spread
    low = low if floor is None else max(low, floor)
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [n * step for n in range(first, last + 1)]
    return ticks[0], ticks[-1], [(tick, f"{tick:.6g}") for tick in ticks]
