"""The table of what a hidden release gives away, in its lab: every kind of judge and choice of parts adds its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sfumato.errors import DataError, printable
from sfumato.judging.attribute_leak import Leak
from sfumato.lab.folder import NOTICE, Lab
from sfumato.lab.scores import versions

Document = dict[str, Any]
NAME = "leak"
UNDEFINED = "-"
NOT_TO_SHARE = NOTICE.splitlines()[0]
LAB_SIDE = "Every number here was computed from real images: all of it is lab material."
LIMITS = (
    "There is no epsilon here. What was measured holds for judges like these; a stronger one may find more.",
    "An attribute hidden is not a person hidden: see who is recognised.",
    "Near the majority rate, a judge knows no more of the attribute than how frequent its classes are; "
    "below it, the judge or the training failed.",
    "The harmonic score does not apply: no membership attack is made on images that are re-generated one by one.",
)
HEAD = (
    "accuracy in % on real test images; PT and inside: on released ones",
    "trained on real images",
    "trained on released images",
    "privacy gain or utility loss",
    "majority rate",
    "most frequent class",
    "chance",
    "balanced, real",
    "balanced, released",
    "deviation over seeds, real",
    "deviation over seeds, released",
)
RECALL_HEAD = ("recall in %", "class", "trained on real images", "trained on released images", "predictions, released")


def add_leak(lab: Lab, leak: Leak) -> None:
    """Put it into the table, in place of an earlier one of the same judge, parts and choice of faces."""
    new = {**asdict(leak), "versions": versions()}
    kept = [known for known in read_leaks(lab.folder) if _same_of(known) != _same_of(new)]
    leaks = [*kept, new]
    document = {"notice": NOT_TO_SHARE, "lab_side": LAB_SIDE, "limits": LIMITS, "leaks": leaks}
    lab.write(f"{NAME}.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
    lab.write(f"{NAME}.md", leak_table(leaks))


def read_leaks(folder: Path) -> list[Document]:
    """What was measured so far, each as `dataclasses.asdict` of a Leak; empty where nothing was."""
    path = folder / f"{NAME}.json"
    if not path.exists():
        return []
    try:
        leaks = list(json.loads(path.read_text("utf-8"))["leaks"])
        for leak in leaks:
            title(leak), list(score_rows(leak)), list(recall_rows(leak)), recognised(leak)  # what a page needs of it
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "Expected a table of leaks that Sfumato wrote, got something else.",
            where=path,
            fix="remove it and measure again",
        ) from error
    return leaks


def leak_table(leaks: list[Document]) -> str:
    """The table for people."""
    text = [NOT_TO_SHARE, "# What the release gives away, and what it is good for", LAB_SIDE, *LIMITS]
    for leak in leaks:
        text += [f"## {title(leak)}", _markdown(HEAD, score_rows(leak)), *recognised(leak)]
        text += [f"**ALARM** {printable(alarm)}." for alarm in leak["alarms"]]
        text.append(_markdown(RECALL_HEAD, recall_rows(leak)))
    return "\n\n".join(text) + "\n"


def title(leak: Document) -> str:
    """What was measured, in a line."""
    tested = leak["released"][leak["attribute"]]["images"]
    front = ", faces from the front" if leak["front"] == "test" else ""
    seeds = f"{len(leak['seeds'])} seed{'s' if len(leak['seeds']) > 1 else ''}"
    return printable(
        f"{leak['attribute']} hidden: judge {leak['judge']}, {seeds}, trained on {leak['trained_on']} images of "
        f"{leak['parts']}, tested on {tested}{front}"
    )


def score_rows(leak: Document) -> Iterator[tuple[str, ...]]:
    """The cells of the table, row by row; `-` where something is not defined."""
    hidden = leak["attribute"]
    yield _row(f"{hidden}, PT (the method's head)", None, leak["told"], None)
    yield _row(f"{hidden}, CLS (lower hides more)", leak["real"][hidden], leak["released"][hidden], leak["gain"])
    yield _row(f"{hidden}, inside the release", None, leak["inside"], None)
    for name in leak["keep"]:
        yield _row(f"{name} (higher is better)", leak["real"][name], leak["released"][name], leak["losses"][name])


def recall_rows(leak: Document) -> Iterator[tuple[str, ...]]:
    """Per-class recall by attribute, and how often a class is predicted."""
    for name, released in leak["released"].items():
        real = leak["real"][name]
        for one, share in released["recalls"].items():
            cells = (_percent(real["recalls"][one]), _percent(share), _percent(released["predicted"][one]))
            yield (printable(name), printable(one), *cells)


def recognised(leak: Document) -> tuple[str, ...]:
    """Who is recognised, in sentences."""
    found = leak["recognition"]
    first = _match(found["by_pixels"], "by small grey images")
    if found["by_faces"] is None:
        return (first, f"Recognition by a face network was left out. {printable(found['why_not_by_faces'])}")
    return (first, _match(found["by_faces"], "by a network that recognises people"))


def _match(match: Document, how: str) -> str:
    found = "shows the same person" if match.get("by_person") else "is the one that it was made from"  # older: without
    return (
        f"For {_with_error(match, 'share')} % of the released images, {how}, the nearest of {match['images']} "
        f"real ones {found} (chance {_percent(match['chance'], digits=2)} %)."
    )


def _same_of(leak: Mapping[str, Any]) -> tuple[str, ...]:
    return (leak["judge"], leak["parts"], leak["front"])


def _row(name: str, real: Document | None, released: Document | None, gained: Document | None) -> tuple[str, ...]:
    either = released or {}
    return (
        printable(name),
        _with_error(real, "accuracy"),
        _with_error(released, "accuracy"),
        _with_error(gained, "value"),
        *(_percent(either.get(key)) for key in ("majority", "test_majority", "chance")),
        *(_percent(None if one is None else one["balanced"]) for one in (real, released)),
        *(_percent(None if one is None else one["seed_deviation"]) for one in (real, released)),
    )


def _with_error(one: Document | None, key: str) -> str:
    return UNDEFINED if one is None else f"{_percent(one[key])} ± {_percent(one['error'])}"


def _percent(share: float | None, *, digits: int = 1) -> str:
    return UNDEFINED if share is None else f"{100 * share:.{digits}f}"


def _markdown(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
