"""The report of a store: static lab pages that open anywhere, with a leaderboard, figures and a page for each cell."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sfumato.errors import EnvironmentProblem, UsageError, printable
from sfumato.experiments.totals import totals
from sfumato.lab.folder import NOTICE
from sfumato.lab.scores import LAB_SIDE
from sfumato.lab.store import Store
from sfumato.release.layout import PREVIEW, read_regular
from sfumato.report.cell_page import cell_page
from sfumato.report.comparisons import read_comparisons
from sfumato.report.leaderboard import (
    Document,
    Leaderboard,
    Line,
    Mean,
    Seen,
    duration,
    memory,
    read_leaderboard,
    shown,
)
from sfumato.report.plots import Figure, Plots, csv_text, read_reported
from sfumato.values import LEVELS

MARKER = "sfumato-site.json"  # a folder that has it may be replaced
NO_CELLS = "This store holds comparisons alone, and no release with a certificate."
LARGEST = 64 << 20  # bytes of a preview
SECTIONS = {
    "accuracy": ("Accuracy against epsilon", "How much does privacy cost? Further to the left is more private."),
    "fidelity": ("Fidelity against utility", "Are images that look real also good to train on? Often they are not."),
    "privacy": (
        "Privacy under attack against utility",
        "What attacks find out from a release, against what it is good "
        "for. An attack that fails proves nothing; the guarantee does.",
    ),
    "classes": (
        "By class and by group",
        "Which of them get worse results? A mean hides it. The first lines of each epsilon are "
        "here, the others on the pages of their cells.",
    ),
    "cost": ("Time and memory", "What a release takes to make."),
}


def write_site(store: Path | str, out: Path | str | None = None) -> Path:
    """Write the pages of a store into the folder `out` (`site`) and return their index.html.

    They appear at once, in place of older ones, and show what all cells on a private data set cost together.
    """
    store = Path(store)
    if not any((store / name).is_dir() for name in ("cells", "tables")):  # a study or a comparison has no cells
        raise UsageError(
            "Expected a store of cells for a site, got another folder.",
            where=store,
            fix="name the --out of `sfumato run`, or add --public for the page of a release",
        )
    return write_site_with(store, Path(out or "site"), {spent.data: asdict(spent) for spent in totals(Store(store))})


def write_site_with(store: Path, out: Path, totals: Mapping[str, Mapping[str, Any]]) -> Path:
    """The same with given totals: for each private data set what its cells cost together."""
    target = out.absolute()
    _refuse_strangers(target)
    command = printable(shlex.join(["sfumato", "report", str(store), "--out", str(out)]))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))  # only its owner can read it
        try:
            _Site(work, store, command).write(totals)
            _put(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)  # after the renaming there is nothing under this name
    except OSError as error:
        raise EnvironmentProblem(
            f"The pages could not be written ({error.strerror or error}).", where=target
        ) from error
    return target / "index.html"


def _refuse_strangers(target: Path) -> None:
    """What is replaced must be pages of ours."""
    if not os.path.lexists(target) or ((target / MARKER).is_file() and not target.is_symlink()):
        return
    if target.is_symlink() or not target.is_dir() or any(target.iterdir()):
        raise UsageError(
            "Expected a new folder or an older report for --out, got something else.",
            where=target,
            fix="choose another --out",
        )


def _put(work: Path, target: Path) -> None:
    old = work.with_name(work.name + ".old")
    if target.exists():
        target.rename(old)
    try:
        work.rename(target)
    except OSError:
        if old.exists():  # better older pages than none
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


class _Site:
    """The pages of one store in a folder."""

    def __init__(self, folder: Path, store: Path, command: str) -> None:
        self.folder, self.store, self.command = folder, store, command
        self.leaderboard = read_leaderboard(store)
        self.plots = Plots(self.leaderboard, read_reported(store))
        self.environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, autoescape=True, trim_blocks=True
        )
        self.files: set[str] = set()

    def write(self, totals: Mapping[str, Mapping[str, Any]]) -> None:
        for name in ("cells", "data", "previews"):
            (self.folder / name).mkdir()
        (self.folder / "PRIVATE").write_text(NOTICE, "utf-8")
        (self.folder / MARKER).write_text(json.dumps({"sfumato": version("sfumato")}) + "\n", "utf-8")
        previews = {
            cell.digest: picture
            for line in self.leaderboard.lines
            for cell in line.cells
            if (picture := self._preview(cell, line)) is not None
        }
        template = self.environment.get_template("cell.html.jinja")
        for line in self.leaderboard.lines:
            for cell in line.cells:
                picture = previews.get(cell.digest)
                shown_there = picture and {**picture, "src": f"../{picture['src']}"}
                page = template.render(cell_page(cell, line, preview=shown_there, report=self.command))
                (self.folder / "cells" / f"{cell.digest}.html").write_text(page, "utf-8")
        index = self.environment.get_template("index.html.jinja").render(self._index(previews, totals))
        (self.folder / "index.html").write_text(index, "utf-8")

    def _preview(self, cell: Seen, line: Line) -> Document | None:
        try:
            picture = read_regular(cell.folder / "release" / PREVIEW, most=LARGEST)
            width, height = struct.unpack(">II", picture[16:24])
        except (OSError, ValueError, struct.error):  # a release without a picture is a release
            return None
        (self.folder / "previews" / f"{cell.digest}.png").write_bytes(picture)
        alt = f"Samples of {line.name} on {line.data} at epsilon {line.epsilon:g}, a row for each class"
        caption = ", ".join(filter(None, (line.name, line.settings)))
        return {
            "src": f"previews/{cell.digest}.png",
            "width": width,
            "height": height,
            "alt": alt,
            "caption": caption,
            "digest": cell.digest,
        }

    def _index(self, previews: Mapping[str, Document], totals: Mapping[str, Mapping[str, Any]]) -> Document:
        leaderboard, columns = self.leaderboard, _columns(self.leaderboard)
        return {
            "has_cells": (self.store / "cells").is_dir(),
            "title": f"What the cells in {printable(self.store.absolute().name)} are worth",
            "lab_side": LAB_SIDE,
            "lead": _lead(leaderboard) if (self.store / "cells").is_dir() else NO_CELLS,
            "tiles": _tiles(leaderboard),
            "command": self.command,
            "columns": columns,
            "common": leaderboard.common,
            "lines": [_row(line, leaderboard) for line in leaderboard.lines],
            "filters": _filters(leaderboard),
            "board_csv": self._file("leaderboard", _leaderboard_csv(leaderboard)),
            "sections": [section for name in SECTIONS if (section := self._section(name)) is not None],
            "galleries": self._galleries(previews),
            "comparisons": read_comparisons(self.store),
            "totals": self._totals(totals),
            "problems": sorted(leaderboard.problems.items()),
        }

    def _section(self, name: str) -> Document | None:
        title, sentence = SECTIONS[name]
        groups = [group for data in self.plots.datasets() if (group := self._group(name, data))]
        side_by_side = all(len(group["first"]) == 1 and not group["more"] for group in groups)
        section = {"id": name, "title": title, "sentence": sentence, "groups": groups, "side_by_side": side_by_side}
        return section if groups else None

    def _group(self, name: str, data: str) -> Document | None:
        """The figures of one data set: two at once, or those of one epsilon; the others are folded away."""
        if name == "classes":
            bars = self.plots.grouped(data)
            opened = _middle(sorted({epsilon for _, epsilon, _ in bars})) if bars else None
            grouped = [
                {
                    "title": f"{title}, epsilon {epsilon:g}",
                    "open": epsilon == opened and title == bars[0][0],
                    "figures": [self._linked(figure) for figure in figures],
                }
                for title, epsilon, figures in bars
            ]
            return {"title": data, "first": [], "more": grouped} if grouped else None
        found = {"accuracy": self.plots.accuracy, "cost": self.plots.cost}.get(name)
        drawn = found(data) if found else self.plots.against(data, name)
        figures = [self._linked(figure) for figure in drawn]
        others = {"title": f"{len(figures) - 2} more", "figures": figures[2:], "open": False}
        rest = [others] if len(figures) > 2 else []
        return {"title": data, "first": figures[:2], "more": rest} if figures else None

    def _linked(self, figure: Figure) -> Document:
        href = self._file(figure.name, figure.csv)
        return {
            "title": figure.title,
            "sentence": figure.sentence,
            "svg": figure.svg,
            "legend": figure.legend,
            "href": href,
            "file": Path(href).name,
        }

    def _file(self, name: str, text: str) -> str:
        """Data beside the page, under a name that is safe anywhere."""
        safe = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "data"
        unique = next(n for k in range(len(self.files) + 1) if (n := f"{safe}-{k}" if k else safe) not in self.files)
        self.files.add(unique)
        (self.folder / "data" / f"{unique}.csv").write_text(text, "utf-8")
        return f"data/{unique}.csv"

    def _galleries(self, previews: Mapping[str, Document]) -> list[Document]:
        """By data set and epsilon, the first one open."""
        found: dict[str, dict[float, list[Document]]] = {}
        for line in self.leaderboard.lines:
            if (picture := previews.get(line.cells[0].digest)) is not None:
                found.setdefault(line.data, {}).setdefault(line.epsilon, []).append(picture)
        return [
            {
                "title": data,
                "galleries": [
                    {"epsilon": f"{epsilon:g}", "pictures": pictures, "open": epsilon == _middle(list(of_epsilon))}
                    for epsilon, pictures in of_epsilon.items()
                ],
            }
            for data, of_epsilon in found.items()
        ]

    def _totals(self, totals: Mapping[str, Mapping[str, Any]]) -> Document | None:
        if not totals:
            return None
        head = list(dict.fromkeys(name for spent in totals.values() for name in spent))
        rows = [
            {"data": printable(data), "cells": [_text(spent.get(name, "")) for name in head]}
            for data, spent in totals.items()
        ]
        text = csv_text(("private data", *head), [(d, *(t.get(n, "") for n in head)) for d, t in totals.items()])
        return {"head": ["private data", *head], "rows": rows, "href": self._file("together", text)}


def _lead(leaderboard: Leaderboard) -> str:
    if not leaderboard.lines:
        return "No cell of this store is finished yet."
    private = sum(line.level == "certified" for line in leaderboard.lines)
    return (
        f"{len(leaderboard.lines)} lines, {private} of them with a certified guarantee. Compare only what has the same "
        "data and the same epsilon; what differs by less than its errors does not differ."
    )


def _tiles(leaderboard: Leaderboard) -> list[Document]:
    def several(values: Iterable[str]) -> tuple[str, str]:
        known = sorted(set(values))
        return str(len(known)), ", ".join(known[:3]) + (", ..." if len(known) > 3 else "")

    waiting = f"{leaderboard.unfinished} not finished" if leaderboard.unfinished else "all finished"
    seconds = sum(line.seconds.value * line.seconds.repeats for line in leaderboard.lines if line.seconds)
    tiles = [
        ("cells", (f"{len(leaderboard.cells):,}", waiting)),
        ("methods", several(line.method for line in leaderboard.lines)),
        ("private data sets", several(line.data for line in leaderboard.lines)),
        ("epsilons", several(f"{line.epsilon:g}" for line in leaderboard.lines)),
        ("time for releases", (duration(seconds), "all cells together")),
    ]
    return [{"label": label, "value": value, "note": printable(note)} for label, (value, note) in tiles]


def _columns(leaderboard: Leaderboard) -> list[Document]:
    names = ["method", "data", "epsilon", "guarantee", "public data"]
    plain = {"first": "ascending", "arrow": "", "hint": ""}
    columns = [{**plain, "label": name, "numeric": name in ("epsilon", "guarantee")} for name in names]
    for name in leaderboard.measures:
        better = leaderboard.better.get(name, "")
        columns.append(
            {
                "label": name,
                "numeric": True,
                "first": "ascending" if better == "lower" else "descending",
                "arrow": {"higher": "↑", "lower": "↓"}.get(better, ""),
                "hint": better and f"{better} is better",
            }
        )
    costs = [
        {**plain, "label": name, "numeric": True, "hint": "of making a release"} for name in ("time", "peak memory")
    ]
    return [*columns, *costs]


def _row(line: Line, leaderboard: Leaderboard) -> Document:
    numbers = [_cell(line.means.get(name)) for name in leaderboard.measures]
    numbers += [
        None if mean is None else {"value": f"{mean.value:.6g}", "text": text(mean.value), "error": ""}
        for mean, text in ((line.seconds, duration), (line.peak_mb, memory))
    ]
    return {
        "data": line.data,
        "method": printable(line.method),
        "epsilon": f"{line.epsilon:g}",
        "epsilon_value": "Infinity" if math.isinf(line.epsilon) else f"{line.epsilon:.17g}",
        "level": line.level,
        "level_rank": LEVELS.index(line.level),
        "public": printable(line.public),
        "settings": line.settings,
        "used": "yes" if line.public else "no",
        "numbers": numbers,
        "cells": [cell.digest for cell in line.cells],
    }


def _cell(mean: Mean | None) -> Document | None:
    if mean is None:
        return None
    error = "" if mean.error is None else shown(mean.error, like=mean.value)
    return {"value": f"{mean.value:.9g}", "text": shown(mean.value), "error": error}


def _filters(leaderboard: Leaderboard) -> list[Document]:
    def options(values: Iterable[str]) -> list[Document]:
        return [{"value": value, "text": value} for value in dict.fromkeys(values)]

    lines, levels = leaderboard.lines, {line.level for line in leaderboard.lines}
    epsilons = sorted({line.epsilon for line in lines})
    return [
        {"label": "Data", "name": "data", "options": options(sorted(line.data for line in lines))},
        {"label": "Epsilon", "name": "epsilon", "options": options(f"{epsilon:g}" for epsilon in epsilons)},
        {"label": "Method", "name": "method", "options": options(sorted(printable(line.method) for line in lines))},
        {
            "label": "Public data",
            "name": "public",
            "options": [{"value": "no", "text": "not used"}, {"value": "yes", "text": "used"}],
        },
        {"label": "Guarantee", "name": "level", "options": options(level for level in LEVELS if level in levels)},
    ]


def _leaderboard_csv(leaderboard: Leaderboard) -> str:
    head = ["data", "method", "public", "epsilon", "settings", "guarantee", "repeats"]
    head += [name for measure in leaderboard.measures for name in (measure, f"{measure} standard error")]
    rows = []
    for line in leaderboard.lines:
        row: list[object] = [
            line.data,
            line.method,
            line.public,
            line.epsilon,
            line.settings,
            line.level,
            len(line.cells),
        ]
        for measure in leaderboard.measures:
            mean = line.means.get(measure)
            row += ["", ""] if mean is None else [mean.value, mean.error]
        rows.append([*row, *("" if mean is None else mean.value for mean in (line.seconds, line.peak_mb))])
    return csv_text([*head, "seconds", "peak_mb"], rows)


def _middle(epsilons: list[float]) -> float:
    """The epsilon that is shown first."""
    return 1.0 if 1.0 in epsilons else epsilons[len(epsilons) // 2]


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(value)
