"""Charts as inline SVG: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

ROW, LABEL, PLOT, NUMBER = 26, 190, 360, 120  # pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar in [0, 1] with its error; `mark` is a second value to compare it with, such as a ceiling."""

    label: str
    value: float
    error: float | None = None
    mark: float | None = None


def bars(chart: Sequence[Bar], *, mark_means: str = "") -> str:
    """Horizontal bars on a scale from 0 to 1."""
    axis = len(chart) * ROW
    height = axis + (44 if mark_means else 24)
    parts = [f'<svg viewBox="0 0 {LABEL + PLOT + NUMBER} {height}" width="{LABEL + PLOT + NUMBER}" role="img">']
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x = LABEL + PLOT * tick
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{axis}" class="grid"/>')
        parts.append(f'<text x="{x}" y="{axis + 15}" class="tick" text-anchor="middle">{tick:g}</text>')
    for row, bar in enumerate(chart):
        parts += _drawn(bar, row * ROW)
    if mark_means:
        parts.append(f'<line x1="{LABEL}" x2="{LABEL}" y1="{axis + 26}" y2="{axis + 40}" class="mark"/>')
        parts.append(f'<text x="{LABEL + 8}" y="{axis + 37}" class="tick">{escape(mark_means)}</text>')
    return "".join([*parts, "</svg>"])


def _drawn(bar: Bar, top: int) -> list[str]:
    middle, value = top + ROW / 2, min(max(bar.value, 0.0), 1.0)
    parts = [
        f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect x="{LABEL}" y="{top + 5}" width="{PLOT * value:.1f}" height="{ROW - 10}" class="bar"/>',
    ]
    shown = f"{bar.value:.3f}"
    if bar.error is not None:
        low, high = (LABEL + PLOT * min(max(value + side * bar.error, 0.0), 1.0) for side in (-1, 1))
        parts.append(f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" class="error"/>')
        shown += f" ± {bar.error:.3f}"
    if bar.mark is not None:
        x = LABEL + PLOT * min(max(bar.mark, 0.0), 1.0)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{top + ROW - 2}" class="mark"/>')
    parts.append(f'<text x="{LABEL + PLOT + 10}" y="{middle + 4}">{shown}</text>')
    return parts
