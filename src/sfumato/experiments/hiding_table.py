"""The table of a comparison of hiders: means and standard errors over seeds, beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfumato.errors import printable
from sfumato.experiments.hiding_format import REAL, Condition, Hiding, ReportedTable, Section
from sfumato.experiments.recipe_format import ProfileName
from sfumato.experiments.study_measures import mean_and_error
from sfumato.judging.leak_table import LAB_SIDE, LIMITS, UNDEFINED
from sfumato.lab.folder import NOTICE

Document = dict[str, Any]
PT, CLS = "pt", "cls"
OF_HIDDEN = {  # columns of the hidden attribute, as the table calls them
    PT: "PT {hidden}",
    CLS: "CLS {hidden}",
    "balanced": "balanced {hidden}",
    "inside": "inside {hidden}",
}
AROUND = {  # columns after those of the kept attributes
    "majority": "majority rate {hidden}",
    "chance": "chance {hidden}",
    "by_pixels": "recognised by pixels",
    "by_faces": "recognised by faces",
}
REGIMES = {
    "no": "all faces",
    "test": "tested on front faces",
    "everywhere": "front faces alone, everywhere",
}
COLUMNS = (
    "Accuracy in %. PT: by the method's own head on the released images; it is not defined where there is no head, and "
    "not for images that trained it. CLS, balanced (mean recall of the classes) and kept attributes: by judges that "
    "are trained on the images of the row, on real test images. Inside: by judges that are trained on most of the "
    "release, on the rest of it. Recognised: how often the nearest real image is the one that a released one was made "
    "from.",
    "Means over all seeds ± standard errors; nothing is selected. Each seed is another division of the records, "
    "another hider and other judges. Published numbers are single runs, marked 'reported'.",
)


@dataclass(frozen=True)
class Measured:
    """What is in the store, by section: of the real images by seed, and of each method by seed."""

    real: dict[Section, dict[int, Document]] = field(default_factory=dict)  # by attribute, scores
    hidden: dict[Section, dict[str, dict[int, Document]]] = field(default_factory=dict)  # leaks


def document(
    recipe: Hiding,
    profile: ProfileName,
    conditions: Sequence[Condition],
    measured: Measured,
    problems: Mapping[Condition, str],
) -> Document:
    """Everything that the table shows, for machines; shares from 0 to 1, published ones too."""
    return {
        "notice": NOTICE.splitlines()[0],
        "lab_side": LAB_SIDE,
        "level": "empirical",
        "title": recipe.title,
        "source": recipe.source,
        "profile": profile,
        "hiding": recipe.hiding,
        "keep": recipe.keep,
        "limits": LIMITS,
        "sections": [
            _section(recipe, section, rows, measured, problems, recipe.profiles[profile].seeds)
            for section, rows in _sections(conditions)
        ],
    }


def _sections(conditions: Sequence[Condition]) -> Iterator[tuple[Section, list[Condition]]]:
    found: dict[Section, list[Condition]] = {}
    for condition in conditions:
        for choice in condition.choices:
            found.setdefault(Section.of(condition, choice), []).append(condition)
    yield from found.items()


def _section(
    recipe: Hiding,
    section: Section,
    conditions: list[Condition],
    measured: Measured,
    problems: Mapping[Condition, str],
    seeds: int,
) -> Document:
    real, hidden = measured.real.get(section, {}), measured.hidden.get(section, {})
    rows = [{"by": REAL, **_of_real(recipe, real), "problem": ""}]
    for condition in conditions:
        leaks = hidden.get(condition.row, {})
        lacking = "" if leaks else "not run yet"
        problem = "" if len(leaks) == seeds else problems.get(condition, lacking)
        rows.append({"by": condition.row, **_of_method(recipe, leaks), "problem": problem})
    return {
        "setup": section.setup,
        "learnt_from": conditions[0].train,
        "release": section.release,
        "stands_for": _stands_for(recipe, section.release),
        "front": section.front,
        "parts": section.choice.parts,
        "rows": rows,
        "majority": {name: _mean([scores[name]["majority"] for scores in real.values()]) for name in recipe.keep},
        "chance": {name: _mean([scores[name]["chance"] for scores in real.values()]) for name in recipe.keep},
        "alarms": _alarms(hidden),
        "reported": [_published(recipe, table) for table in recipe.reported if _is_of(recipe, table, section)],
    }


def _of_real(recipe: Hiding, runs: Mapping[int, Document]) -> Document:
    scores = list(runs.values())
    return {"seeds": len(runs), "measured": _judged(recipe, scores), "keep": _kept(recipe, scores)}


def _of_method(recipe: Hiding, runs: Mapping[int, Document]) -> Document:
    leaks = list(runs.values())
    released = [leak["released"] for leak in leaks]
    found = _judged(recipe, released)
    found[PT] = _mean([leak["told"]["accuracy"] for leak in leaks if leak["told"] is not None])
    found["inside"] = _mean([leak["inside"]["accuracy"] for leak in leaks])
    for how in ("by_pixels", "by_faces"):
        matches = [leak["recognition"][how] for leak in leaks]
        found[how] = _mean([match["share"] for match in matches if match is not None])
    return {"seeds": len(runs), "measured": found, "keep": _kept(recipe, released)}


def _judged(recipe: Hiding, scores: list[Document]) -> Document:
    """What judges tell of the hidden attribute; what is not theirs is not known here."""
    of_hidden = [score[recipe.hiding] for score in scores]
    known = {CLS: "accuracy", "balanced": "balanced", "majority": "majority", "chance": "chance"}
    empty: Document = dict.fromkeys((*OF_HIDDEN, *AROUND))
    return empty | {name: _mean([score[key] for score in of_hidden]) for name, key in known.items()}


def _kept(recipe: Hiding, scores: list[Document]) -> Document:
    return {name: _mean([score[name]["accuracy"] for score in scores]) for name in recipe.keep}


def _mean(values: list[float]) -> Document | None:
    return dict(zip(("value", "standard_error"), mean_and_error(values), strict=True)) if values else None


def _alarms(hidden: Mapping[str, Mapping[int, Document]]) -> list[Document]:
    """Each alarm once, with the methods and seeds that raised it."""
    found: dict[str, list[str]] = {}
    for method, runs in hidden.items():
        for seed, leak in runs.items():
            for alarm in leak["alarms"]:
                found.setdefault(alarm, []).append(f"{method}, seed {seed}")
    return [{"alarm": alarm, "of": of} for alarm, of in found.items()]


def _stands_for(recipe: Hiding, release: str) -> str | None:
    entry = recipe.data.get(release)
    return entry.stands_for if entry else None


def _is_of(recipe: Hiding, table: ReportedTable, section: Section) -> bool:
    """A table of a setup that releases one data set need not name it; what stands in for another has its tables."""
    here = (table.setup, table.parts, table.front) == (section.setup, section.choice.parts, section.front)
    return here and table.release in ("", section.release, _stands_for(recipe, section.release))


def _published(recipe: Hiding, table: ReportedTable) -> Document:
    rows = {}
    for by, (pt, cls, *kept) in table.percents.items():
        named = dict(zip(recipe.keep, map(_share, kept), strict=True))
        rows[by] = {PT: _share(pt), CLS: _share(cls), "keep": named}
    return {"table": table.table, "rows": rows}


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def markdown(recipe: Hiding, made: Document) -> str:
    """The same for people."""
    text = [
        NOTICE,
        f"# {made['title']}",
        f"{made['source']}; profile {made['profile']}.",
        recipe.note.strip(),
        LAB_SIDE,
        *LIMITS,
        *COLUMNS,
    ]
    for section in made["sections"]:
        text += [f"## {title(section)}", _table(recipe, section)]
        text += _problems(section)
        if any(section["majority"].values()):
            text.append(_beside(section))
        text += [f"**ALARM** {printable(alarm['alarm'])} ({'; '.join(alarm['of'])})." for alarm in section["alarms"]]
    return "\n\n".join(filter(None, text)) + "\n"


def title(section: Document) -> str:
    """What the rows of a section have in common, in a line."""
    release, trained = section["release"], " and ".join(section["learnt_from"])
    stands = f" (stands in for {section['stands_for']})" if section["stands_for"] else ""
    return (
        f"{section['setup']}: learnt from {trained}, {release} released{stands}; {REGIMES[section['front']]}; "
        f"judges trained on {section['parts']}"
    )


def _table(recipe: Hiding, section: Document) -> str:
    head = ["images", "seeds"]
    head += [words.format(hidden=recipe.hiding) for words in OF_HIDDEN.values()]
    head += [*recipe.keep, *(words.format(hidden=recipe.hiding) for words in AROUND.values()), ""]
    rows = [head, ["---"] * len(head)]
    left = {by: table for table in reversed(section["reported"]) for by in table["rows"]}
    for row in section["rows"]:
        rows.append(_row(recipe, row))
        if row["by"] in left:
            rows.append(_reported_row(recipe, row["by"], left.pop(row["by"])))
    rows += [_reported_row(recipe, by, table) for by, table in left.items()]  # of methods that are not compared here
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _row(recipe: Hiding, row: Document) -> list[str]:
    found = row["measured"]
    values = [*(found[name] for name in OF_HIDDEN), *(row["keep"][name] for name in recipe.keep)]
    values += [found[name] for name in AROUND]
    return [row["by"], str(row["seeds"]), *map(_percent, values), ""]


def _reported_row(recipe: Hiding, by: str, table: Document) -> list[str]:
    known = table["rows"][by]
    shares = [known.get(name) for name in OF_HIDDEN] + [known["keep"][name] for name in recipe.keep]
    shares += [None] * len(AROUND)
    cells = [UNDEFINED if share is None else f"{100 * share:.2f}" for share in shares]
    return [f"{by}, reported", "", *cells, f"table {table['table']}"]


def _problems(section: Document) -> list[str]:
    """Why rows lack seeds: each reason once, with its rows."""
    found: dict[str, list[str]] = {}
    for row in section["rows"]:
        if row["problem"]:
            found.setdefault(row["problem"], []).append(row["by"])
    return [f"{', '.join(rows)}: {printable(problem)}" for problem, rows in found.items()]


def _beside(section: Document) -> str:
    """What accuracies of kept attributes are to be compared with."""
    parts = [
        f"{name} {_percent(rate)} (chance {_percent(section['chance'][name])})"
        for name, rate in section["majority"].items()
    ]
    return f"Majority rates of the kept attributes: {'; '.join(parts)}."


def _percent(score: Document | None) -> str:
    if score is None:
        return UNDEFINED
    error = "" if score["standard_error"] is None else f" ± {100 * score['standard_error']:.1f}"
    return f"{100 * score['value']:.1f}{error}"
