"""sfumato list: what can be chosen from, and where it cannot be printed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import COMMAND, sfumato


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("methods", "dp-merf"), ("metrics", "nearest"), ("attacks", "nearest-neighbour"), ("datasets", "digits")],
)
def test_list_shows_what_there_is(kind: str, expected: str) -> None:
    outcome = sfumato("list", kind)
    assert outcome.code == 0
    assert expected in outcome.out
    assert expected in json.loads(sfumato("list", kind, "--json").out)


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "of an unknown kind": (("paintings",), "paintings"),
    "without a kind": ((), "Missing argument"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("list", *arguments), 2, needle)
    assert left_in(workdir) == []


def test_output_to_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run([*COMMAND, "list", "methods"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 5
    assert run.stderr.splitlines() == ["The system refused: No space left on device."]
