"""A run as it goes: one live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.experiments.cell import Outcome, Runnable
from sfumato.experiments.status import line_of, shown

if TYPE_CHECKING:
    from rich.table import Table

REFRESH_EVERY = 0.5  # seconds


class Watched:
    """Counts the cells that have ended; reads from the store which are running, on any engine."""

    def __init__(self, store: Path, cells: Sequence[Runnable]) -> None:
        self._folders = {cell.name: cell.stored(store) for cell in cells}
        self._ended: dict[str, str] = {}
        self._begun = time.monotonic()

    def end(self, outcome: Outcome) -> None:
        self._ended[outcome.name] = outcome.problem
        if not sys.stderr.isatty():
            print(
                f"{self.head()}: {outcome.name}{f': {outcome.problem}' if outcome.problem else ''}",
                file=sys.stderr,
                flush=True,
            )

    def head(self) -> str:
        """How many have ended, and how long the others will take at that pace."""
        ended, total = len(self._ended), len(self._folders)
        taken = time.monotonic() - self._begun
        left = f", about {taken / ended * (total - ended) / 60:.0f} min left" if 0 < ended < total else ""
        return f"{ended} of {total}{left}"

    def table(self) -> Table:
        from rich.table import Table

        problems = sum(map(bool, self._ended.values()))
        table = Table(title=self.head() + (f", {problems} with a problem" if problems else ""), expand=False)
        for column in ("cell", "stage", "", "rate", "remaining"):
            table.add_column(column)
        for name, cell in self._folders.items():
            if name not in self._ended and (line := line_of(cell))["state"] == "running":
                table.add_row(name, *shown(line))
        return table


@contextmanager
def watching(store: Path, cells: Sequence[Runnable]) -> Iterator[Watched]:
    """Show the cells of a run until it is over."""
    watched = Watched(store, cells)
    if not sys.stderr.isatty():
        yield watched
        return
    from rich.console import Console
    from rich.live import Live

    over = threading.Event()
    with Live(watched.table(), console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def refresh() -> None:
            while not over.wait(REFRESH_EVERY):
                live.update(watched.table(), refresh=True)

        refresher = threading.Thread(target=refresh, daemon=True)
        refresher.start()
        try:
            yield watched
        finally:
            over.set()
            refresher.join()
