"""The table of scores in the lab of a release: each metric and attack adds its rows; for machines and for people."""

from __future__ import annotations

import io
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from sfumato.contracts import Judgement
from sfumato.errors import DataError, printable
from sfumato.lab.folder import NOTICE, Lab
from sfumato.values import Score

NAME = "scores"
KINDS = (*get_args(Judgement), "all")
LAB_SIDE = "Every number here was computed from real images outside the ledger: all of it is lab material."
_PACKAGES = ("sfumato", "torch", "numpy", "scikit-learn")


@dataclass(frozen=True, slots=True)
class Entry:
    """A score and how it was computed."""

    score: Score
    by: str  # the metric or attack, as `sfumato list` names it
    judges: str  # one of KINDS
    settings: Mapping[str, Any] = field(default_factory=dict)


def add_scores(lab: Lab, entries: Sequence[Entry], *, judged_on: str, left_out: Mapping[str, str]) -> None:
    """Put the entries into the table, in place of the earlier scores of the same metrics and attacks."""
    ours = {entry.by for entry in entries} | set(left_out)
    before = read_scores(lab.folder)
    rows = [row for row in before["scores"] if row["by"] not in ours]
    rows += [row for entry in entries for row in _rows(entry, judged_on)]
    rows.sort(key=lambda row: KINDS.index(row["judges"]))  # stable: within a kind in the order of judging
    skipped = {by: why for by, why in before["left_out"].items() if by not in ours} | dict(left_out)
    document = {"notice": NOTICE.splitlines()[0], "lab_side": LAB_SIDE, "left_out": skipped, "scores": rows}
    lab.write(f"{NAME}.json", json.dumps(document, indent=2, default=str, allow_nan=False) + "\n")
    lab.write(f"{NAME}.parquet", _parquet(rows))
    lab.write(f"{NAME}.md", markdown(document))


def read_scores(folder: Path) -> dict[str, Any]:
    """The table so far, or an empty one."""
    path = folder / f"{NAME}.json"
    if not path.exists():
        return {"scores": [], "left_out": {}}
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return {**document, "scores": list(document["scores"]), "left_out": dict(document["left_out"])}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "Expected a table of scores that Sfumato wrote, got something else.",
            where=path,
            fix="remove it and judge again",
        ) from error


def markdown(document: Mapping[str, Any]) -> str:
    """The table for people."""
    text = [NOTICE, "# What the release is worth", LAB_SIDE]
    for kind in KINDS:
        rows = [row for row in document["scores"] if row["judges"] == kind]
        if rows:
            head = ["| score | value | standard error | better |", "|---|---|---|---|"]
            lines = [f"| {' | '.join(_cells(row))} |" for row in rows]
            text += [f"## {kind.capitalize()}", "\n".join(head + lines)]
    judged = dict.fromkeys(row["judged_on"] for row in document["scores"])
    text += [f"Judged on {' and on '.join(judged)}."] if judged else []
    if document["left_out"]:
        left = [f"- {by}: {printable(why)}" for by, why in document["left_out"].items()]
        text += ["## Left out", "\n".join(left)]
    text += ["Settings, seeds, versions and details of each score are in `scores.json` and `scores.parquet`."]
    return "\n\n".join(text) + "\n"


def _rows(entry: Entry, judged_on: str) -> Iterator[dict[str, Any]]:
    for score, parent in _flat(entry.score, None):
        yield {
            "score": score.name,
            "part_of": parent,
            "by": entry.by,
            "judges": entry.judges,
            "value": _number(score.value),
            "standard_error": _number(score.standard_error),
            "better": "higher" if score.higher_is_better else "lower",
            "seeds": list(score.seeds or entry.score.seeds),
            "settings": _plain(entry.settings),
            "versions": versions(),
            "judged_on": judged_on,
            "details": _plain(score.details),
        }


def _flat(score: Score, parent: str | None) -> Iterator[tuple[Score, str | None]]:
    yield score, parent
    for part in score.parts:
        yield from _flat(part, score.name)


def versions() -> dict[str, str]:
    """What a score may depend on beside its settings."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def _number(value: float | None) -> float | None:
    """JSON has neither infinity nor not-a-number."""
    return None if value is None or not math.isfinite(value) else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return (value if math.isfinite(value) else str(value)) if isinstance(value, float) else value


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = ("score", "part_of", "by", "judges", "better", "judged_on")
    folded = ("settings", "versions", "details")  # as JSON: their keys differ from judge to judge
    columns = [(name, pa.string()) for name in (*text, *folded)]
    columns += [("value", pa.float64()), ("standard_error", pa.float64()), ("seeds", pa.list_(pa.int64()))]
    lines = [{**row, **{name: json.dumps(row[name], default=str) for name in folded}} for row in rows]
    table = pa.Table.from_pylist(lines, pa.schema(columns))
    written = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"notice": NOTICE.splitlines()[0]}), written)
    return written.getvalue()


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"&nbsp;&nbsp;{row['score']}" if row["part_of"] else f"**{row['score']}**"
    return name, _shown(row["value"]), _shown(row["standard_error"]), row["better"]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
