"""sfumato report: a public page of a release, and which requests are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.checking import left_in, refused

from commands import Outcome, sfumato


def test_json(made: tuple[Path, Path, Outcome], tmp_path: Path) -> None:
    outcome = sfumato("report", made[1], "--public", "--out", tmp_path / "page.html", "--json")
    assert outcome.code == 0, outcome.err
    assert "<html" in Path(json.loads(outcome.out)["open"]).read_text("utf-8")


REQUESTS: dict[str, tuple[tuple[str, ...], str]] = {
    "without a folder": ((), "Missing argument"),
    "public page of nothing": (("r", "--public"), "Expected a release folder"),
    "site of nothing": (("r",), "Expected a store of cells"),
    "site of a folder that is no store": ((".",), "Expected a store of cells"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_bad_request(name: str, workdir: Path) -> None:
    arguments, needle = REQUESTS[name]
    refused(sfumato("report", *arguments), 2, needle)
    assert left_in(workdir) == []


def test_page_in_a_folder_that_is_not_there(made: tuple[Path, Path, Outcome], workdir: Path) -> None:
    outcome = sfumato("report", made[1], "--public", "--out", "nowhere/page.html")
    refused(outcome, 2, "Expected the name of a file in a folder that exists")
    assert left_in(workdir) == []


def test_public_page_of_a_folder_that_is_no_release(workdir: Path) -> None:
    refused(sfumato("report", workdir, "--public", "--out", "page.html"), 6, "Expected a readable certificate.json")
    assert left_in(workdir) == []
