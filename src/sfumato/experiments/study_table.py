"""The table of a study: means and standard errors over seeds, and under it what became of the claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sfumato.experiments.claims import CLAIMS, Measured, Results, statement
from sfumato.experiments.study_format import Condition, Study
from sfumato.experiments.study_measures import before_overfitting, mean_and_error
from sfumato.judging.harmonic import FORMULAS
from sfumato.judging.memorisation import marks
from sfumato.lab.folder import NOTICE

WORDS = {
    "accuracy": "accuracy, %",
    "bias": "model bias",
    "auc": "AUC, strongest",
    "tpr": "TPR at 0.1 % FPR, strongest",
    "harmonic": "harmonic score",
    "risk": "membership probability of the riskiest",
    "early": "early stop, epoch",
    "overfitted": "over-fitted, epoch",
    "before": "AUC before over-fitting",
}
PERCENT = {"accuracy"}
REMOVAL = (
    "The records were removed because of what a classifier said of them, so a guarantee of a later round is none: "
    "it holds for the records that were left, and not for the choice of them."
)


def document(
    study: Study, profile: str, conditions: list[Condition], results: Results, problems: Mapping[Condition, str]
) -> dict[str, Any]:
    """Everything that the table shows, for machines."""
    lines: list[dict[str, Any]] = []
    for condition in conditions:
        runs = results.get(condition, {})
        known = {
            "data": condition.data,
            "epsilon": condition.epsilon if condition.private else None,
            "techniques": condition.techniques,
            **dict(condition.settings),
        }
        problem = problems.get(condition, "" if runs else "not run yet")
        made = list(_lines(study, runs)) or [({}, {})]
        for own, values in made:
            summary = {
                name: dict(zip(("value", "standard_error"), mean_and_error(v), strict=True))
                for name, v in values.items()
            }
            lines.append({**known, **own, "seeds": len(runs), "measured": summary, "problem": problem})
    return {
        "notice": NOTICE.splitlines()[0],
        "title": study.title,
        "source": study.source,
        "profile": profile,
        "harmonic_score": FORMULAS["bounded"],
        "rows": lines,
        "claims": statement(results, study.study, problems),
    }


def _lines(study: Study, runs: Mapping[int, Measured]) -> Iterator[tuple[dict[str, Any], dict[str, list[float]]]]:
    """What sets a line apart, and its values over seeds: one line of a condition, or one of each round."""
    measures: list[str] = list(study.measure)
    if study.study == "outliers":
        for number in range(max((len(run.rounds) for run in runs.values()), default=0)):
            rounds = [run.rounds[number] for run in runs.values() if len(run.rounds) > number]
            yield {"round": number}, {name: [found[name] for found in rounds] for name in (*measures, "risk")}
        return
    if not runs:
        return
    values = {name: [run.value[name] for run in runs.values()] for name in measures}
    if study.study == "memorisation":
        values |= _times(runs)
    yield {}, values


def _times(runs: Mapping[int, Measured]) -> dict[str, list[float]]:
    """When the marks are, in epochs; a run that is not over-fitted has none of these."""
    early, overfitted, before = [], [], []
    for run in runs.values():
        found = marks([row["validation loss"] for row in run.rows])
        if found.early_stop is not None:
            early.append(run.epochs * run.rows[found.early_stop]["done"])
        before.append(before_overfitting(run.rows)["auc"])
        if found.over_fit is not None:
            overfitted.append(run.epochs * run.rows[found.over_fit]["done"])
    times = {"early": early, "before": before, "overfitted": overfitted}
    return {name: values for name, values in times.items() if values}


def markdown(study: Study, made: dict[str, Any]) -> str:
    """The same for people."""
    lines = made["rows"]
    axes = list(dict.fromkeys(name for line in lines for name in line if name not in _FIXED))
    measures = list(dict.fromkeys(name for line in lines for name in line["measured"])) or list(study.measure)
    head = [
        "data",
        "privacy",
        "techniques",
        *axes,
        *(WORDS.get(name, name.replace("auc-", "AUC, ")) for name in measures),
        "seeds",
        "",
    ]
    body = [_line(line, axes, measures) for line in lines]
    text = [
        NOTICE,
        f"# {made['title']}",
        f"{made['source']}; profile {made['profile']}.",
        study.note.strip(),
        "\n".join(map(_row, [head, ["---"] * len(head), *body])),
        f"Means over seeds, and standard errors where there are several. {made['harmonic_score']}, AUC of the "
        "strongest of the four attacks. Learnt attacks judge across folds. Epsilon is that of one training; that "
        "several were compared on the same records is not counted in it.",
        REMOVAL if study.study == "outliers" else "",
        "## Claims",
        "Supported: the difference in the claimed direction is larger than 2 standard errors over seeds; contradicted: "
        "smaller than minus 2; not seen: neither.",
        "\n".join(map(_row, _claims(made["claims"]))),
    ]
    return "\n\n".join(filter(None, text)) + "\n"


_FIXED = ("data", "epsilon", "techniques", "seeds", "measured", "problem")


def _line(line: dict[str, Any], axes: list[str], measures: list[str]) -> list[str]:
    privacy = "not private" if line["epsilon"] is None else f"epsilon {line['epsilon']:g}"
    shown = [_score(name, line["measured"].get(name)) for name in measures]
    own = [str(line.get(name, "")) for name in axes]
    return [line["data"], privacy, line["techniques"], *own, *shown, str(line["seeds"]), line["problem"]]


def _score(name: str, score: dict[str, float] | None) -> str:
    if score is None:
        return ""
    factor, digits = (100, 2) if name in PERCENT else (1, 3)
    error = "" if score["standard_error"] is None else f" ± {factor * score['standard_error']:.{digits}f}"
    return f"{factor * score['value']:.{digits}f}{error}"


def _claims(found: list[dict[str, Any]]) -> Iterator[list[str]]:
    yield ["", "claim", "what was compared", "difference", "standard error", "seeds", "verdict"]
    yield ["---"] * 7
    for finding in found:
        known = finding["difference"] is not None
        yield [
            str(finding["claim"]),
            CLAIMS[finding["claim"]],
            finding["scope"],
            f"{finding['difference']:+.4f}" if known else "",
            f"{finding['standard_error']:.4f}" if finding["standard_error"] is not None else "",
            str(finding["seeds"]) if known else "",
            finding["verdict"],
        ]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
