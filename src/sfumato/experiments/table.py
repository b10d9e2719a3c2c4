"""The table of a recipe: what was measured beside what the literature reports, each marked as what it is."""

from __future__ import annotations

import math
from typing import Any

from sfumato.experiments.recipe import Row, measure_key
from sfumato.experiments.recipe_format import ProfileName, Recipe, Value
from sfumato.lab.folder import NOTICE

PERCENT = ("student", "teacher")  # measures that are accuracies
NO_SPLIT = "\\* judged on the training records themselves: the data set has no test split"


def document(
    recipe: Recipe,
    profile: ProfileName,
    rows: list[Row],
    scores: list[dict[str, Any]],
    problems: dict[str, str],
    tuning: dict[str, Any],
) -> dict[str, Any]:
    """Everything that the table shows, for machines; reported rows without a cell of their own come last."""
    settings = recipe.profiles[profile].metrics
    keys = {name: measure_key(name, settings.get(name, {})) for name in recipe.measure}
    literature = recipe.reported.documents()
    used: list[int] = []
    lines = []
    for row, found in zip(rows, scores, strict=True):
        matches = [
            k for k, reported in enumerate(literature) if reported["by"] == "paper" and _fits(recipe, row, reported)
        ]
        used += matches
        lines.append(
            {
                "by": "measured",
                "cell": row.name,
                **_axes(recipe, row),
                "student": row.student.arch,
                "measured": {name: _measured(row, name, found, keys) for name in recipe.measure if name != "losses"},
                "reported": literature[matches[0]]["value"] if matches else None,
                "problem": problems.get(row.name, "" if found else "not run yet"),
            }
        )
    rest = [reported for k, reported in enumerate(literature) if k not in used]
    return {
        "notice": NOTICE.splitlines()[0],
        "title": recipe.title,
        "source": recipe.source,
        "profile": profile,
        "tuning": tuning,
        "rows": lines,
        "reported": {"measure": recipe.reported.measure, "rows": rest},
    }


def markdown(recipe: Recipe, profile: str, made: dict[str, Any]) -> str:
    """The same for people."""
    lines, literature = made["rows"], made["reported"]["rows"]
    named = [name for line in lines for name in line["axes"]] + [n for reported in literature for n in reported]
    axes = [n for n in dict.fromkeys(named) if n not in ("by", "value", "error", "data", "public", "epsilon", "arch")]
    measures = [name for name in recipe.measure if name != "losses"]
    head = [
        "by",
        "private data",
        "public data",
        "epsilon",
        *axes,
        "architecture",
        *(f"{name} accuracy" if name in PERCENT else name for name in measures),
        f"{recipe.reported.measure}, reported",
        "",
    ]
    body = [_line(line, axes, measures) for line in lines] + [
        _reported_line(reported, axes, measures) for reported in literature
    ]
    marked = any("*" in cell for cells in body for cell in cells)
    text = [
        NOTICE,
        f"# {recipe.title}",
        f"{recipe.source}; profile {profile}.",
        recipe.note.strip(),
        _row(head) + "\n" + _row(["---"] * len(head)) + "".join("\n" + _row(cells) for cells in body),
        "Accuracies in percent, mean and standard error over seeds, each student as it is after its last step. "
        "Reported numbers are the literature's own.",
        _tuning(made["tuning"]),
        NO_SPLIT if marked else "",
    ]
    return "\n\n".join(filter(None, text)) + "\n"


def _tuning(tuning: dict[str, Any]) -> str:
    chosen = [f"- {c['group']}: {c['chosen']}, for {c['cost']}" for c in tuning["choices"]]
    return "\n".join([tuning["sentence"], *chosen])


def _axes(recipe: Recipe, row: Row) -> dict[str, Any]:
    def shown(name: str) -> str:
        stands_for = recipe.data[name].stands_for if name in recipe.data else None
        return f"{name} (stands in for {stands_for})" if stands_for else name

    labelled: dict[str, Any] = {"label": row.label} if row.label else {}
    if any(grid.method for grid in recipe.grid):
        labelled["method"] = row.cell.method
    if any(grid.repeats > 1 for grid in recipe.grid):
        labelled["repeat"] = row.cell.repeat
    return {
        "data": shown(row.cell.data),
        "public": shown(row.cell.public) if row.cell.public else "none",
        "epsilon": row.cell.epsilon,
        "axes": {**labelled, **dict(row.axes)},
    }


def _fits(recipe: Recipe, row: Row, reported: dict[str, Value]) -> bool:
    """Whether a reported number belongs to that row; a stand-in counts as what it stands for."""
    for name, value in reported.items():
        if name in ("by", "value", "error"):
            continue
        fact = row.fact(name)
        entry = recipe.data.get(str(fact)) if name in ("data", "public") else None
        if isinstance(fact, int | float) and isinstance(value, int | float):
            if not (fact == value or math.isclose(fact, value)):
                return False
        elif value not in (fact, entry and entry.stands_for):
            return False
    return True


def _measured(row: Row, name: str, found: dict[str, Any], keys: dict[str, str]) -> dict[str, Any] | None:
    """`keys` are the names that judgements are filed under, which tell their settings."""
    score = found.get(row.student.key if name == "student" else keys[name])
    if score is None or score["value"] is None:
        return None
    details = score.get("details", {})
    return {
        "value": score["value"],
        "standard_error": score.get("standard_error"),
        "test_split": details.get("test_split", True),
    }


def _line(line: dict[str, Any], axes: list[str], measures: list[str]) -> list[str]:
    shown = [_score(name, line["measured"][name]) for name in measures]
    epsilon = f"{line['epsilon']:g}" + (" (not private)" if math.isinf(line["epsilon"]) else "")
    reported = "" if line["reported"] is None else f"{line['reported']:.2f}"
    return [
        line["by"],
        line["data"],
        line["public"],
        epsilon,
        *(_text(line["axes"].get(a, "")) for a in axes),
        line["student"] if "student" in measures else "",
        *shown,
        reported,
        line["problem"],
    ]


def _reported_line(reported: dict[str, Any], axes: list[str], measures: list[str]) -> list[str]:
    by = "the paper" if reported["by"] == "paper" else reported["by"]
    value = f"{reported['value']:.2f}" + (f" ± {reported['error']:g}" if "error" in reported else "")
    fixed = [_text(reported.get(name, "")) for name in ("data", "public", "epsilon")]
    return [
        f"{by} (reported)",
        *fixed,
        *(_text(reported.get(a, "")) for a in axes),
        _text(reported.get("arch", "")),
        *("" for _ in measures),
        value,
        "",
    ]


def _score(name: str, score: dict[str, Any] | None) -> str:
    if score is None:
        return ""
    factor, digits = (100, 2) if name in PERCENT else (1, 3)
    error = "" if score["standard_error"] is None else f" ± {factor * score['standard_error']:.{digits}f}"
    return f"{factor * score['value']:.{digits}f}{error}" + ("" if score["test_split"] else " \\*")


def _text(value: Value) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
