"""How far the cells of a store are, as anyone can see who can read it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from sfumato.errors import UsageError
from sfumato.lab.store import HIDING, STUDIES, Store, Stored


def store_status(store: Path | str = "runs") -> list[dict[str, Any]]:
    """One line for each cell: waiting, running, begun and left, or released, with what is known of it."""
    if not Path(store).is_dir():
        raise UsageError(
            "Expected the folder of a store, got none.", where=store, fix="name the --out of `sfumato run`"
        )
    return [line_of(cell) for cell in Store(Path(store)).cells()]


def line_of(cell: Stored) -> dict[str, Any]:
    inputs, released = cell.inputs(), cell.release.exists()
    left = "begun" if cell.ledger.exists() else "waiting"
    state = "running" if _held(cell.folder / "lock") else "released" if released else left
    line = {
        "cell": cell.digest,
        "state": state,
        "name": _name(inputs),
        "measures": sorted(cell.measures()),
    }
    return line if state in ("released", "waiting") else {**line, **_stage(cell, released)}


def _name(inputs: dict[str, Any]) -> str:
    """What it is for people; where an attribute is hidden there is no epsilon."""
    guarantee = f"epsilon {inputs['epsilon']:g}, " if "epsilon" in inputs else ""
    return f"{inputs.get('data')} by {inputs.get('method')}, {guarantee}repeat {inputs.get('repeat', 0)}"


def _stage(cell: Stored, released: bool) -> dict[str, Any]:
    """What is being done, how fast, and how long that will take."""
    stage, phase = cell.stage(), "judging" if released else "releasing"
    phase = {STUDIES: "study", HIDING: "hiding"}.get(cell.folder.parent.name, phase)
    if stage is None:
        return {"stage": phase, "done": "", "rate": None, "left": None}
    return {
        "stage": f"{phase}: {stage.what}",
        "done": f"{stage.done} of {stage.total}",
        "rate": stage.rate,
        "left": stage.left,
    }


def _held(lock: Path) -> bool:
    """Whether a process on this machine holds the lock; asking changes nothing."""
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def shown(line: dict[str, Any]) -> tuple[str, str, str, str]:
    """Stage, how much of it, rate and remaining time, for people."""
    rate, left = line.get("rate"), line.get("left")
    return (
        line.get("stage", ""),
        line.get("done", ""),
        f"{rate:.1f}/s" if rate else "",
        "" if left is None else f"{left:.0f} s left",
    )


def status_text(lines: list[dict[str, Any]]) -> str:
    """The same for people."""
    if not lines:
        return "No cell has been begun here."
    shown_lines = []
    for line in lines:
        now = ", ".join(filter(None, shown(line)))
        shown_lines.append(f"  {line['state']:9s} {line['cell']}  {line['name']}{f'  ({now})' if now else ''}")
    count = {
        state: sum(line["state"] == state for line in lines) for state in ("released", "running", "begun", "waiting")
    }
    return "\n".join([*shown_lines, ", ".join(f"{number} {state}" for state, number in count.items())])
