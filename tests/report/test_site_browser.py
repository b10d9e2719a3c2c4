"""The pages of a store in a real browser: sorting, filtering, figures, no request to anywhere, and no barrier.

Screenshots land in the test's temporary folder, or in $SFUMATO_SCREENSHOTS if that is set; look at them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from report.fabricated import CHOICES, METHODS, fabricate, file_table, report_literature
from sfumato.report.site import write_site, write_site_with

playwright = pytest.importorskip("playwright.sync_api", reason="needs the package `playwright`")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's package `chromium`")

SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
WAIT = 60_000  # milliseconds: a machine may be busy
Opened = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("browser") / "runs"
    fabricate(runs, data=("digits", "fashion-mnist"), publics=("", "scenes"))
    report_literature(
        runs,
        measure="gen2real",
        beside=[],
        rows=[{"by": "Doe 2024", "data": "digits", "method": "dp-hp", "epsilon": 10, "value": 0.9}],
    )
    tuned = {"how": "public", "sentence": "Settings were chosen on clouds, which is public.", "choices": CHOICES}
    file_table(runs, "all-small", title="All methods at small epsilon", profile="small", tuning=tuned)
    totals = {"digits": {"cells": 36, "epsilon": 31.4, "delta": 1e-5, "tuning": "not charged"}}
    return write_site_with(runs, runs.with_name("site"), totals).parent


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Opens a page and, when it is left, fails on whatever it complained about or asked the world for."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])

        @contextmanager
        def open_page(path: Path, *, size: str = "desk", scheme: str = "light") -> Iterator[Any]:
            context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
            context.set_default_timeout(WAIT)
            page, complaints = context.new_page(), []
            page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda asked: None if asked.url.startswith("file:") else complaints.append(asked.url))
            page.goto(path.as_uri())
            try:
                yield page
            finally:
                context.close()
            assert not complaints

        yield open_page
        browser.close()


def until(page: Any, condition: str) -> None:
    """Playwright's own waiting needs eval in the page, which the page forbids."""
    deadline = time.monotonic() + WAIT / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(50)


def keep(page: Any, folder: Path, name: str) -> None:
    """A picture of the whole page, as an artefact of the test."""
    page.evaluate("document.querySelectorAll('img').forEach((image) => { image.loading = 'eager'; })")
    until(page, "[...document.querySelectorAll('details[open] img, .preview img')].every((i) => i.complete)")
    page.screenshot(path=Path(os.environ.get("SFUMATO_SCREENSHOTS") or folder) / f"{name}.png", full_page=True)


def cells_of(page: Any, column: str) -> list[str]:
    """What the visible rows have under a heading."""
    return page.evaluate(
        """(name) => {
          const heads = [...document.querySelectorAll('#board thead th')];
          const place = heads.findIndex((head) => head.textContent.trim().startsWith(name));
          const rows = [...document.querySelectorAll('#board tbody tr')].filter((row) => !row.hidden);
          return rows.map((row) => row.cells[place].dataset.v ?? '');
        }""",
        column,
    )


def heading(page: Any, name: str) -> Any:
    return page.locator("#board thead th", has_text=name).first


def test_headings_sort_by_click_and_by_key(site: Path, opened: Opened) -> None:
    with opened(site / "index.html") as page:
        head = heading(page, "gen2real")
        head.locator("button").click()
        values = [float(v) for v in cells_of(page, "gen2real")]
        assert values == sorted(values, reverse=True)  # the best first
        assert head.get_attribute("aria-sort") == "descending"
        head.locator("button").press("Enter")
        assert [float(v) for v in cells_of(page, "gen2real")] == sorted(values)
        assert head.get_attribute("aria-sort") == "ascending"
        heading(page, "epsilon").locator("button").click()
        assert [float(v) for v in cells_of(page, "epsilon")] == sorted(float(v) for v in cells_of(page, "epsilon"))
        assert head.get_attribute("aria-sort") == "none"
        assert page.locator("#board th[aria-sort=ascending]").count() == 1


def test_filters_leave_what_was_chosen(site: Path, opened: Opened) -> None:
    with opened(site / "index.html") as page:
        everything = len(cells_of(page, "method"))
        assert everything == 36
        page.get_by_label("Data", exact=True).select_option("digits")
        page.get_by_label("Method", exact=True).select_option(METHODS[0])
        page.get_by_label("Public data").select_option("yes")
        assert cells_of(page, "data") == ["digits"] * 3
        assert set(cells_of(page, "public data")) == {"scenes"}
        page.get_by_label("Epsilon", exact=True).select_option("1")
        assert cells_of(page, "epsilon") == ["1"]
        assert page.locator("#count").inner_text() == "1 of 36 rows"
        page.get_by_label("Guarantee", exact=True).select_option("certified")
        assert len(cells_of(page, "method")) == 1
        page.get_by_role("button", name="Show all").click()
        until(page, "document.getElementById('count').textContent === '36 rows'")
        assert len(cells_of(page, "method")) == everything


def test_figures_and_pictures_are_there(site: Path, opened: Opened) -> None:
    with opened(site / "index.html") as page:
        assert page.locator("#accuracy svg[role=img]").count() == 2  # one for each data set
        assert page.locator("#accuracy svg .hollow").count() > 0
        for section in ("fidelity", "privacy", "cost"):
            assert page.locator(f"#{section} svg[role=img]:visible").count() >= 2, section
        assert page.locator("#classes svg[role=img]:visible").count() > 0
        picture = page.locator("#samples details[open] img").first
        picture.scroll_into_view_if_needed()
        until(page, "document.querySelector('#samples details[open] img').naturalWidth > 0")
        with page.expect_download() as download:
            page.locator("#accuracy figcaption a").first.click()
        assert Path(download.value.path()).read_text("utf-8").startswith("by,method,public")
        page.locator("#board .links a").first.click()
        assert page.locator("h2", has_text="What was asked of the private data").count() == 1
        page.locator("a", has_text="All cells").click()
        assert page.locator("#board").count() == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_barriers(site: Path, opened: Opened, tmp_path: Path, size: str, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs the package `axe-playwright-python`"
    )
    cell = sorted((site / "cells").glob("*.html"))[0]
    for name, path in (("index", site / "index.html"), ("cell", cell)):
        with opened(path, size=size, scheme=scheme) as page:
            found = axe.Axe().run(page).response["violations"]
            serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
            assert not serious
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0  # nobody has to push the page sideways
            keep(page, tmp_path, f"site-{name}-{size}-{scheme}")


def test_choices_are_a_table(site: Path, opened: Opened) -> None:
    with opened(site / "index.html") as page:
        section = page.locator("#comparisons")
        assert section.locator("h3").all_inner_texts() == ["All methods at small epsilon", "some-small"]
        assert section.locator("tbody tr").count() == len(CHOICES)
        assert section.get_by_text("steps 500: 0.710").is_visible()
        assert section.get_by_text("Nothing was tuned.").is_visible()


def test_a_thousand_rows_sort_and_filter(opened: Opened, tmp_path: Path) -> None:
    fabricate(tmp_path / "runs", settings=[{"steps": str(number)} for number in range(112)], repeats=1)
    with opened(write_site(tmp_path / "runs", tmp_path / "site")) as page:
        unsorted = [float(v) for v in cells_of(page, "gen2real")]
        assert len(unsorted) == 1008
        heading(page, "gen2real").locator("button").click()
        assert [float(v) for v in cells_of(page, "gen2real")] == sorted(unsorted, reverse=True) != unsorted
        page.get_by_label("Method", exact=True).select_option(METHODS[1])
        page.get_by_label("Epsilon", exact=True).select_option("1")
        assert cells_of(page, "method") == [METHODS[1]] * 112
        assert page.locator("#count").inner_text() == "112 of 1008 rows"
        heading(page, "epsilon").locator("button").click()  # sorting keeps what is filtered away out of sight
        assert set(cells_of(page, "epsilon")) == {"1"}
        page.get_by_role("button", name="Show all").click()
        until(page, "document.getElementById('count').textContent === '1008 rows'")
        assert [float(v) for v in cells_of(page, "epsilon")] == [0.2] * 336 + [1.0] * 336 + [10.0] * 336
