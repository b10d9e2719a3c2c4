"""Progress of long work: a bar with rate and remaining time on a terminal, else a line now and then, or a callback."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

QUIET_LINE_EVERY = 30.0  # seconds between lines where there is no terminal
LISTENER_EVERY = 1.0  # seconds between calls of a listener


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a piece of work is: so many of so many, at this rate."""

    what: str
    done: int
    total: int
    rate: float  # a second

    @property
    def left(self) -> float | None:
        """Seconds, about."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


Listener = Callable[[Stage], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Within this, progress is passed to the listener and not printed."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


_SAID: set[str] = set()


def say_once(sentence: str) -> None:
    """Print a sentence to standard error the first time that it is said in this process."""
    if sentence not in _SAID:
        _SAID.add(sentence)
        print(sentence, file=sys.stderr, flush=True)


def track(items: Iterable[T], *, what: str, total: int) -> Iterator[T]:
    """Yield the items and show how far we are, on standard error or to the listener."""
    listener = _LISTENER.get()
    if listener is not None:
        yield from _to_listener(items, listener, what=what, total=total)
    elif sys.stderr.isatty():
        yield from _bar(items, what=what, total=total)
    else:
        yield from _lines(items, what=what, total=total)


def _bar(items: Iterable[T], *, what: str, total: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
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


def _to_listener(items: Iterable[T], listener: Listener, *, what: str, total: int) -> Iterator[T]:
    first = last = time.monotonic()
    listener(Stage(what, 0, total, 0.0))
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last > LISTENER_EVERY:
            last = now
            listener(Stage(what, done, total, done / (now - first)))
