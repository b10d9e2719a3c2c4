"""How far the cells of a store are, as anyone can see who can read it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any

from sfumato.bench.store import Store, Stored


def status(store: Store) -> list[dict[str, Any]]:
    """One line for each cell: running, begun and left, or released, with what is known of it."""
    return [_line(cell) for cell in store.cells()]


def _line(cell: Stored) -> dict[str, Any]:
    told = cell.inputs()
    released = cell.release.exists()
    state = "running" if _held(cell.folder / "lock") else "released" if released else "begun"
    newest = max((path.stat().st_mtime for path in cell.folder.rglob("*")), default=0.0)
    return {
        "cell": cell.digest,
        "state": state,
        "stage": "judging" if released else "releasing",
        "name": f"{told.get('data')} by {told.get('method')}, epsilon {told.get('epsilon'):g}, "
        f"repeat {told.get('repeat', 0)}",
        "measures": sorted(cell.measures()),
        "seconds_since_it_moved": round(time.time() - newest),
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


def _moved(line: dict[str, Any]) -> str:
    done = line["state"] == "released"
    return "" if done else f"  ({line['stage']}, moved {line['seconds_since_it_moved']} s ago)"


def text(lines: list[dict[str, Any]]) -> str:
    """The same for people."""
    if not lines:
        return "No cell has been begun here."
    shown = [f"  {line['state']:9s} {line['cell']}  {line['name']}{_moved(line)}" for line in lines]
    count = {state: sum(line["state"] == state for line in lines) for state in ("released", "running", "begun")}
    return "\n".join([*shown, ", ".join(f"{number} {state}" for state, number in count.items())])
