"""sfumato status: an empty store, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import sfumato


def test_empty_store(tmp_path: Path) -> None:
    outcome = sfumato("status", tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "No cell has been begun here.\n"


def test_json(tmp_path: Path) -> None:
    outcome = sfumato("status", tmp_path, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == []


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "store that is not there": (("nowhere",), "Expected the folder of a store"),
    "default store that is not there": ((), "Expected the folder of a store"),
    "file": (("tiny.npz",), "Expected the folder of a store"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("status", *arguments), 2, needle)
    assert left_in(workdir) == []
