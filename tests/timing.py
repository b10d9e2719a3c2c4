"""Processor time of tests: the slowest are printed at the end, and the conformance of a method or learner has a budget.

A budget is in units of a fixed computation that is timed in the same process: one unit takes about a second on a
laptop-class core. What exceeds it is printed and fails nothing: beside other work processor time varies twofold, and no
test may fail by chance.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from typing import Any

import pytest
import torch

BUDGET = 10.0  # units for all conformance tests of one method or learner
CONFORMANCE = {f"tests/conformance/test_{kind}.py::": kind for kind in ("methods", "learners")}
SLOW = (  # by `make test-all` alone
    "test_it_takes_colour_images",
    "test_record_and_replay_on_every_neighbour",
    "test_data_in_several_processes_gives_the_same_model",
)
PROCESSOR, UNIT = "processor time", "unit"


def processor_time() -> float:
    """Of this process and of the children that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measured_unit() -> float:
    """A tenth of a unit, times ten: small products and Python around them, as in the tests."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(64, 64, generator=generator)
    started = time.process_time()
    for _ in range(4_900):
        matrix = torch.tanh(matrix @ matrix)
    return 10 * (time.process_time() - started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    yield from _timed(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if item.nodeid.startswith(tuple(CONFORMANCE)) and UNIT not in item.config.stash.setdefault(_KNOWN, {}):
        item.config.stash[_KNOWN][UNIT] = measured_unit()
    if item.nodeid.startswith(tuple(CONFORMANCE)):
        item.user_properties.append((UNIT, item.config.stash[_KNOWN][UNIT]))
    yield from _timed(item)


_KNOWN = pytest.StashKey[dict[str, float]]()


def _timed(item: pytest.Item) -> Generator[None, Any, Any]:
    before = processor_time()
    try:
        return (yield)
    finally:
        item.user_properties.append((PROCESSOR, processor_time() - before))


def _times(terminal: Any) -> dict[str, tuple[float, float | None]]:
    """Processor time and unit by test."""
    found: dict[str, tuple[float, float | None]] = {}
    for outcome in ("passed", "failed"):
        for report in terminal.stats.get(outcome, []):
            spent = sum(value for name, value in report.user_properties if name == PROCESSOR)
            units = [value for name, value in report.user_properties if name == UNIT]
            found[report.nodeid] = (spent, units[0] if units else None)
    return found


def conformance(times: dict[str, tuple[float, float | None]], suite: str, names: list[str]) -> dict[str, float]:
    """Units that the conformance of each method or learner took, in its suite."""
    spent = dict.fromkeys(names, 0.0)
    for nodeid, (seconds, unit) in times.items():
        if nodeid.startswith(suite) and unit and not any(name in nodeid for name in SLOW):
            parameters = nodeid.partition("[")[2]
            owner = max((m for m in names if m in parameters), key=len, default=None)
            if owner is not None:
                spent[owner] += seconds / unit
    return spent


def over_budget(terminal: Any) -> list[str]:
    from sfumato import contracts

    times, found = _times(terminal), []
    for suite, kind in CONFORMANCE.items():
        spent = conformance(times, suite, list(contracts.names(kind)))
        found += [f"{name}: {units:.1f} units, at most {BUDGET:g}" for name, units in spent.items() if units > BUDGET]
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    times = _times(terminalreporter)
    slowest = sorted(times.items(), key=lambda entry: -entry[1][0])[:10]
    total = sum(seconds for seconds, _ in times.values())
    terminalreporter.section(f"processor time: {total / 60:.1f} minutes; the ten slowest tests")
    for nodeid, (seconds, _) in slowest:
        terminalreporter.write_line(f"{seconds:6.1f} s  {nodeid}")
    for line in over_budget(terminalreporter):
        terminalreporter.write_line(f"conformance over budget: {line}", red=True)
