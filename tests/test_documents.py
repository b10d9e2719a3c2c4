"""The checks of documents notice what they are for."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
SOURCE = ROOT / "src" / "sfumato"
BUILD = runpy.run_path(str(ROOT / "docs" / "build.py"))
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
    text = BUILD["text"]()
    for row in (
        "| `--set` (repeatable) |",
        "| `--i-know-epsilon-is-large` |",
        "| `--json` |",
        "One of `grey`, `colour`.",
    ):
        assert row in text


def test_the_pages_list_what_is_in_the_code() -> None:
    assert [page.name for page, made in BUILD["pages"]().items() if made != page.read_text("utf-8")] == []


def test_every_table_is_in_a_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in BUILD["pages"]())
    assert set(BUILD["MARKED"].findall(pages)) == {(name, " -->\n") for name in BUILD["TABLES"]}
