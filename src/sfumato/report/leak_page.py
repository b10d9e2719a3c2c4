"""The page of what a hidden release gives away and what it is worth, in its lab: one file that opens anywhere."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sfumato.errors import UsageError, printable
from sfumato.judging.leak import PICTURE
from sfumato.judging.leak_table import (
    HEAD,
    LAB_SIDE,
    LIMITS,
    RECALL_HEAD,
    Document,
    read_leaks,
    recall_rows,
    recognised,
    score_rows,
    title,
)
from sfumato.lab.folder import Lab
from sfumato.report.charts import Axis, Bar, Point, Series, bars, legend, scatter

PAGE = "leak.html"


def write_leak_page(folder: Path | str) -> Path:
    """Write `leak.html` into the lab of a hidden release, from what was measured so far."""
    release = Path(folder).absolute()
    beside = Lab.beside(release)
    leaks = read_leaks(beside.folder)
    if not leaks:
        raise UsageError(
            "Expected something that was measured of this release, got nothing.",
            where=beside.folder,
            fix="run `sfumato leak` first",
        )
    with beside as lab:
        return lab.write(PAGE, _page(release, lab.folder, leaks))


def _page(release: Path, lab: Path, leaks: list[Document]) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    picture = lab / PICTURE
    return environment.get_template("leak.html.jinja").render(
        title=f"What {printable(release.name)} gives away of {printable(leaks[0]['attribute'])}",
        lab_side=LAB_SIDE,
        limits=LIMITS,
        head=HEAD,
        recall_head=RECALL_HEAD,
        sections=[_section(leak) for leak in leaks],
        scatter=_scatter(leaks),
        picture=base64.b64encode(picture.read_bytes()).decode() if picture.exists() else "",
    )


def _section(leak: Document) -> dict[str, Any]:
    return {
        "title": title(leak),
        "alarms": [printable(alarm) for alarm in leak["alarms"]],
        "chart": _bars(leak),
        "rows": list(score_rows(leak)),
        "recognised": recognised(leak),
        "recalls": list(recall_rows(leak)),
        "machine": json.dumps(leak, indent=1),
    }


def _bars(leak: Document) -> str:
    """Accuracies with the majority rate as a mark: of the hidden attribute first, then of those that are kept."""
    chart = []
    for name in (leak["attribute"], *leak["keep"]):
        for trained_on in ("real", "released"):
            score = leak[trained_on][name]
            chart.append(Bar(f"{printable(name)}: {trained_on}", score["accuracy"], score["error"], score["majority"]))
        if name == leak["attribute"]:
            inside = leak["inside"]
            chart.append(Bar(f"{printable(name)}: inside", inside["accuracy"], inside["error"], inside["majority"]))
    return bars(chart, mark_means="majority rate")


def _scatter(leaks: list[Document]) -> dict[str, str]:
    """Privacy against utility: what is still told of the hidden attribute, and of each kept one."""
    keep = list(dict.fromkeys(name for leak in leaks for name in leak["keep"]))
    series = [
        Series(f"{printable(name)}, {trained_on} images", points, style=style, hollow=trained_on == "real")
        for style, name in enumerate(keep)
        for trained_on in ("real", "released")
        if (points := [_point(leak, name, trained_on) for leak in leaks if name in leak["keep"]])
    ]
    if not series:
        return {"svg": "", "legend": ""}
    x = Axis("accuracy of the hidden attribute (lower hides more)")
    y = Axis("accuracy of a kept attribute")
    label = "Privacy against utility of judges trained on real and on released images"
    return {"svg": scatter(series, x=x, y=y, label=label), "legend": legend(series)}


def _point(leak: Document, name: str, trained_on: str) -> Point:
    hidden, kept = leak[trained_on][leak["attribute"]], leak[trained_on][name]
    return Point(hidden["accuracy"], kept["accuracy"], kept["error"], title(leak))
