"""The checks of documents notice what they are for."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from sfumato.experiments.hiding_format import conditions_of, is_hiding, read_hiding
from sfumato.experiments.recipe import read_recipe, rows_of

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


PAGES = {page.name: page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))}
FILTERED = re.compile(r'sfumato run (recipes/\w+\.toml) [^`\n]*--only "([^"]+)"')


LINKED = re.compile(r"\]\(([^)#:\s]+)(?:#([\w-]+))?\)")  # of this repository


def heading_names(text: str) -> set[str]:
    """What headings are called in links."""
    return {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ")).lower().replace(" ", "-")
        for line in text.split("\n")
        if line[:1] == "#"
    }


def test_every_link_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    links = [(page, *found) for page in pages for found in LINKED.findall(page.read_text("utf-8"))]
    assert len(links) > 50
    missing = [(page.name, path) for page, path, _ in links if not (page.parent / path).exists()]
    unnamed = [
        (page.name, path, name)
        for page, path, name in links
        if name and (page.parent / path).exists() and name not in heading_names((page.parent / path).read_text("utf-8"))
    ]
    assert missing + unnamed == []


def test_the_recipes_of_the_page_on_recipes_can_be_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGES["recipes.md"], re.DOTALL)
    (hiding,) = (block for block in blocks if block.startswith("hiding ="))
    (tmp_path / "hiding.toml").write_text(hiding)
    assert conditions_of(read_hiding(tmp_path / "hiding.toml"), "small")
    example, *tunings = (block for block in blocks if block != hiding)
    for tuning in ("", *tunings):
        (tmp_path / "example.toml").write_text(f"{example}\n{tuning}")
        assert rows_of(read_recipe(tmp_path / "example.toml"), "small")


@pytest.mark.parametrize(
    ("recipe", "only"), sorted({found for page in PAGES.values() for found in FILTERED.findall(page)})
)
def test_a_filter_in_the_documents_names_cells_of_its_recipe(recipe: str, only: str) -> None:
    path = ROOT / recipe
    cells = conditions_of(read_hiding(path), "small") if is_hiding(path) else rows_of(read_recipe(path), "small")
    assert any(only in cell.name for cell in cells)
