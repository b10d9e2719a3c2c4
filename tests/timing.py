"""Processor time of tests: the slowest are printed at the end, and the conformance of what is added has a budget.

A budget is in units of a fixed computation that is timed in the same process: one unit takes about a second on a
laptop-class core. What exceeds it is printed and fails nothing: beside other work processor time varies twofold, and no
test may fail by chance.

`slow.txt` names the tests of more than two seconds, which `make test` leaves out and `make test-all` has. Nobody keeps
it by hand: `.venv/bin/python -m pytest -n 2 --write-slow` runs all tests and writes it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

LISTED = Path(__file__).with_name("slow.txt")
SLOW_FROM = 2.0  # seconds
BUDGET = 10.0  # units for all conformance tests of one method, learner or hider
SUITES = {"methods": "methods", "learners": "learners", "hiders": "hiding"}  # and the kinds that they are about
CONFORMANCE = {f"tests/conformance/test_{suite}.py::": kind for suite, kind in SUITES.items()}
BESIDE_THE_BUDGET = (  # they take long by what they are
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow", action="store_true", help="write tests/slow.txt again, by what this run took")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = set(LISTED.read_text("utf-8").splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker("slow")


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
    """Units that the conformance of each method, learner or hider took, in its suite."""
    spent = dict.fromkeys(names, 0.0)
    for nodeid, (seconds, unit) in times.items():
        if nodeid.startswith(suite) and unit and not any(name in nodeid for name in BESIDE_THE_BUDGET):
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
    if terminalreporter.config.getoption("--write-slow"):
        slow = sorted(nodeid for nodeid, (seconds, _) in times.items() if seconds > SLOW_FROM)
        LISTED.write_text("".join(f"{nodeid}\n" for nodeid in slow), "utf-8")
    for line in over_budget(terminalreporter):
        terminalreporter.write_line(f"conformance over budget: {line}", red=True)
