"""The tables of a store as its index shows them: what was compared, and how settings were chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sfumato.errors import printable
from sfumato.report.leaderboard import Document, number, shown

HIDDEN = "An attribute is hidden by several methods; there is no epsilon here. No setting was chosen by these numbers."
UNTUNED, UNKNOWN = "Nothing was tuned.", "How settings were chosen is not known."


def read_comparisons(store: Path) -> list[Document]:
    """Each table by the name of its folder; those that cannot be read are skipped."""
    found: list[Document] = []
    for path in sorted((store / "tables").glob("*/table.json")):
        try:
            table = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(table, dict):
            title, profile = table.get("title") or path.parent.name, table.get("profile") or ""
            named = {"name": path.parent.name, "title": title, "profile": profile}
            found.append({name: printable(text) for name, text in named.items()} | _chosen(table))
    return found


def _chosen(table: Document) -> Document:
    """How settings were chosen; of a comparison of hiders that there is no guarantee, too."""
    if table.get("level") == "empirical":
        return {"sentence": HIDDEN, "choices": []}
    return _tuning(table.get("tuning"))


def _tuning(tuning: Any) -> Document:
    """What was tuned; where that cannot be read the page does not claim that nothing was."""
    if tuning is None:
        return {"sentence": UNTUNED, "choices": []}
    if not isinstance(tuning, dict) or not isinstance(tuning.get("sentence"), str):
        return {"sentence": UNKNOWN, "choices": []}
    choices = tuning.get("choices")
    listed = choices if isinstance(choices, list) else []
    return {"sentence": printable(tuning["sentence"]), "choices": [_choice(c) for c in listed if isinstance(c, dict)]}


def _choice(choice: Document) -> Document:
    scores = choice.get("scores")
    named = scores.items() if isinstance(scores, dict) else ()
    known = [(printable(name), shown(value)) for name, given in named if (value := number(given)) is not None]
    return {**{name: printable(choice.get(name, "")) for name in ("group", "chosen", "cost")}, "scores": known}
