"""The page of one cell: what was asked of the private data, what that cost, and what came of it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from sfumato.errors import printable
from sfumato.lab.scores import LAB_SIDE
from sfumato.release import Certificate
from sfumato.report.leaderboard import Document, Line, Seen, duration, memory, number, numbers_by_name, shown
from sfumato.report.plots import GROUPED, Figure, class_bars, csv_text, curve_of_delta

LARGE = 10  # above this epsilon the command line asks for a confirming option


def release_command(inputs: Document) -> str:
    """What to type for such a release, from what the cell was made from."""
    reading = dict(inputs.get("reading") or {})
    words = [
        "sfumato",
        "release",
        str(inputs["data"]),
        "--method",
        str(inputs["method"]),
        "--epsilon",
        f"{inputs['epsilon']:g}",
    ]
    options = {
        "--delta": inputs.get("delta"),
        "--public": inputs.get("public"),
        "--count": inputs.get("count"),
        "--size": reading.get("size") or inputs.get("size"),
        "--mode": reading.get("mode") or inputs.get("mode"),
        "--label": reading.get("label"),
        "--classes": ",".join(reading.get("classes") or ()),
    }
    for name, value in options.items():
        words += [name, f"{value:g}" if isinstance(value, float) else str(value)] if value not in (None, "") else []
    words += ["--skip-bad"] if reading.get("skip_bad") else []
    for name, value in sorted(dict(inputs.get("settings") or {}).items()):
        words += ["--set", f"{name}={value}"]
    words += ["--i-know-epsilon-is-large"] if LARGE < inputs["epsilon"] < math.inf else []
    return printable(shlex.join([*words, "--out", "my-release"]))


def cell_page(cell: Seen, line: Line, *, preview: Document | None, report: str) -> Document:
    """Everything that the template of a cell shows."""
    certificate = cell.certificate
    scores = list(_scores(cell))
    return {
        "title": f"{line.name} on {line.data}, epsilon {cell.inputs['epsilon']:g}",
        "lab_side": LAB_SIDE,
        "level": cell.level,
        "claim": _claim(certificate),
        "repeats": _repeats(cell, line),
        "tiles": _tiles(cell, line),
        "command": release_command(cell.inputs),
        "report": report,
        "ledger": (ledger := _ledger(certificate)),
        "ledger_csv": data_url(csv_text(list(LEDGER), [tuple(row.values()) for row in ledger])),
        **_privacy(certificate),
        "assumptions": certificate.assumptions,
        "scores": scores,
        "scores_csv": data_url(
            csv_text(
                ("score", "part", "value", "standard_error", "better", "judges"),
                [(r["name"], r["part"], r["exact"], r["exact_error"], r["better"], r["judges"]) for r in scores],
            )
        ),
        "figures": [linked(figure) for figure in _figures(cell, line)],
        "preview": preview,
        "settings": [(name, str(value)) for name, value in sorted(certificate.method.hyperparameters.items())],
        "cost": _cost(cell),
        "versions": sorted({**cell.made.get("versions", {}), **certificate.versions}.items()),
        "inputs": json.dumps(cell.inputs, indent=1, sort_keys=True, default=str),
    }


LEDGER = ("purpose", "question", "rounds", "noise")


def data_url(text: str) -> str:
    """A file inside of the page."""
    return "data:text/csv;charset=utf-8," + quote(text)


def linked(figure: Figure) -> Document:
    """A figure whose data is inside of the page."""
    return {
        "title": figure.title,
        "sentence": figure.sentence,
        "svg": figure.svg,
        "legend": figure.legend,
        "href": data_url(figure.csv),
        "file": "figure.csv",
    }


def _claim(certificate: Certificate) -> str:
    guarantee = certificate.guarantee
    if guarantee.epsilon is None:
        return "Nothing is guaranteed: do not publish this release."
    return f"Epsilon {guarantee.epsilon:.4g} at delta {guarantee.delta:g}, for {guarantee.unit}."


def _repeats(cell: Seen, line: Line) -> list[Document]:
    if len(line.cells) == 1:
        return []
    return [
        {"digest": other.digest, "number": place, "here": other is cell} for place, other in enumerate(line.cells, 1)
    ]


def _tiles(cell: Seen, line: Line) -> list[Document]:
    certificate = cell.certificate
    public = certificate.public
    tiles = [
        (
            "images released",
            f"{certificate.samples.count:,}",
            f"{public.height} x {public.width} pixels, {len(public.classes)} classes",
        ),
        ("private records", f"{public.count:,}", "their number is public knowledge"),
        ("public data", line.public or "none", "not protected" if line.public else "nothing beside"),
    ]
    for name, score in list(cell.scores.items())[:3]:
        tiles.append((name, shown(float(score["value"])), f"{_better(score)} is better"))
    return [{"label": label, "value": value, "note": note} for label, value, note in tiles]


def _ledger(certificate: Certificate) -> list[Document]:
    return [
        {
            "purpose": asked.purpose,
            "question": _question(asked.described()),
            "rounds": f"{asked.rounds:,}",
            "noise": f"{asked.noise_multiplier:.4g}" if asked.noise_multiplier else "none",
        }
        for asked in certificate.mechanisms
    ]


def _question(asked: Document) -> str:
    if asked["kind"] == "gaussian-sum":
        rate = asked["sampling"]
        who = "all records" if rate == 1 else f"a fresh random sample of the records (rate {rate:.4g})"
        return f"a sum over {who}, to which no record adds more than its bound, with Gaussian noise"
    if asked["kind"] == "noisy-choice":
        return f"the best of {asked['candidates']:,} candidates, chosen under noise"
    return f"an answer of one of {asked['shards']:,} teachers on disjoint shards, with Gaussian noise"


def _privacy(certificate: Certificate) -> Document:
    """How much of the budget went, what that means, and the curve; none of them where nothing is guaranteed."""
    guarantee, budget = certificate.guarantee, certificate.budget.epsilon
    if guarantee.epsilon is None:
        return {"spent": None, "meaning": "", "curve": None}
    allowed = budget or guarantee.epsilon or 1.0
    percent = min(100.0, 100 * guarantee.epsilon / allowed)
    factor = math.exp(min(guarantee.epsilon, 700))
    odds = f"a factor of {factor:.3g}" if factor < 1e6 else "a factor so large that it means little"
    meaning = (
        f"In words: take any one private image away, and the odds of whatever anyone could conclude from this "
        f"release change by at most {odds}, except with probability {guarantee.delta:g}."
    )
    curve = curve_of_delta(certificate.profile, epsilon=guarantee.epsilon, delta=guarantee.delta)
    sentence = (
        f"Spent: epsilon {guarantee.epsilon:.4g} of {allowed:.4g} ({percent:.0f} %), at delta {guarantee.delta:g}."
    )
    return {"spent": {"sentence": sentence, "percent": f"{percent:.1f}"}, "meaning": meaning, "curve": linked(curve)}


def _scores(cell: Seen) -> Iterator[Document]:
    for name, score in cell.scores.items():
        yield _row({**score, "name": name}, str(score.get("judges") or ""), part=False)
        for part in _parts(score):
            yield _row(part, "", part=True)


def _parts(score: Document) -> Iterator[Document]:
    """Each part, followed by its own parts."""
    for part in score.get("parts") or ():
        if isinstance(part, dict):
            yield part
            yield from _parts(part)


def _row(score: Document, judges: str, *, part: bool) -> Document:
    value, error = number(score.get("value")), number(score.get("standard_error"))
    return {
        "name": str(score.get("name", "")),
        "part": part,
        "judges": judges,
        "better": _better(score),
        "value": "" if value is None else shown(value),
        "exact": value,
        "error": "" if error is None else shown(error, like=value),
        "exact_error": error,
    }


def _better(score: Document) -> str:
    return "lower" if score.get("higher_is_better") is False else "higher"


def _figures(cell: Seen, line: Line) -> Iterator[Figure]:
    for name, score in cell.scores.items():
        for key in GROUPED:
            if values := numbers_by_name(score, key):
                yield class_bars(
                    name,
                    key,
                    values,
                    marks=numbers_by_name(score, "real_shares"),
                    where=f"{line.name} on {line.data}, epsilon {line.epsilon:g}",
                )


def _cost(cell: Seen) -> list[Document]:
    steps: Iterable[tuple[str, Document]] = (("making the release", cell.made), *cell.scores.items())
    return [
        {
            "step": name,
            "time": _shown_if_known(measured, "seconds", duration),
            "processor": _shown_if_known(measured, "processor_seconds", duration),
            "memory": _shown_if_known(measured, "peak_mb", memory),
        }
        for name, measured in steps
        if number(measured.get("seconds")) is not None
    ]


def _shown_if_known(document: Document, key: str, text: Any) -> str:
    value = number(document.get(key))
    return "" if value is None else str(text(value))
