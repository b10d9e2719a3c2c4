"""The checks of documents notice what they are for."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
SOURCE = ROOT / "src" / "sfumato"
problems = runpy.run_path(str(ROOT / "checks" / "documents.py"))["problems"]


def test_the_tree_of_the_readme_is_that_of_the_source() -> None:
    assert problems(README, SOURCE) == []


def test_a_package_too_few_or_too_many_is_noticed() -> None:
    renamed = README.replace("  judging/ ", "  bench/ ")
    assert problems(renamed, SOURCE) == [
        "README.md: the tree does not name judging/",
        "README.md: the tree names bench/, which is not there",
    ]


def test_the_page_of_commands_names_every_option_as_it_is_written() -> None:
    text = runpy.run_path(str(ROOT / "docs" / "build.py"))["text"]()
    for row in (
        "| `--set` (repeatable) |",
        "| `--i-know-epsilon-is-large` |",
        "| `--json` |",
        "One of `grey`, `colour`.",
    ):
        assert row in text
    assert text == (ROOT / "docs" / "commands.md").read_text("utf-8")
