"""How far long work is: a bar with rate and remaining time on a terminal, quiet lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

QUIET_LINE_EVERY = 30.0  # seconds between lines where there is no terminal


def track(items: Iterable[T], *, what: str, total: int) -> Iterator[T]:
    """Yield the items and show how far we are, on standard error."""
    if sys.stderr.isatty():
        yield from _bar(items, what=what, total=total)
    else:
        yield from _lines(items, what=what, total=total)


def _bar(items: Iterable[T], *, what: str, total: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[rate]}"), TimeRemainingColumn())  # fmt: skip
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, rate="")
        for done, item in enumerate(items, start=1):
            yield item
            progress.update(task, completed=done, rate=f"{done / (time.monotonic() - started):.1f}/s")


def _lines(items: Iterable[T], *, what: str, total: int) -> Iterator[T]:
    first = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if done == 1:
            first = now  # the first item often prepares the others, so it says nothing about their pace
        elif now - last > QUIET_LINE_EVERY:
            last = now
            left = (now - first) / (done - 1) * (total - done)
            print(f"{what}: {done} of {total}, about {left:.0f} s left", file=sys.stderr, flush=True)
