"""The public page in a real browser: quiet, self-contained, readable by everybody, on a phone and on paper.

Screenshots land in the test's temporary folder, or in $SFUMATO_SCREENSHOTS if that is set; look at them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.nn.functional import one_hot

from release.making import CLASSES, OPEN, make_certificate, make_images
from sfumato.privacy import GaussianSum, profile
from sfumato.release import write_release
from sfumato.report.public import write_page_here
from sfumato.values import Images

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package `playwright`")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the package `axe-playwright-python`")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's package `chromium`")

PATIENCE = 180_000  # milliseconds; a busy machine draws slowly
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"], timeout=PATIENCE)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One with everything on it and names that do not break, and one of a release that is not private."""
    folder = tmp_path_factory.mktemp("pages")
    asked, grid = tuple(GaussianSum(noise_multiplier=9.0) for _ in range(4)), [0.0, 0.25, 0.5, 1.0]
    plain, purposes = make_images(transfer=25), ("tones", "means", "y" * 300, "z")
    classes = (*CLASSES, "w" * 200, *(f"class {k}" for k in range(30)))
    soft = Images(plain.pixels[:9], plain.labels[:9], classes, one_hot(plain.labels[:9], len(classes)).float())
    full = Images(plain.pixels, plain.labels, classes, network=soft)
    public = {
        "count": 60_000,
        "channels": 1,
        "height": 8,
        "width": 8,
        "classes": classes,
        "public_data": "long " * 60 + "x" * 900,
        "public_network": f"{'n' * 100}, SHA-256 {'0' * 64}",
    }
    certificate = make_certificate(
        full,
        *asked,
        profile=list(zip(grid, profile(asked, grid), strict=True)),
        public=public,
        mechanisms=[{**m.to_dict(), "purpose": p} for m, p in zip(asked, purposes, strict=True)],
    )
    naked = make_certificate(plain, guarantee=OPEN, profile=[])
    made = {
        "certified": write_release(folder / "certified", full, certificate, export_folders=True),
        "naked": write_release(folder / "naked", plain, naked),
    }
    return {name: write_page_here(release, folder / f"{name}.html") for name, release in made.items()}


class Visit:
    """A page that is open, and what it did on the way."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def wider_than_the_screen(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def keep(self, folder: Path, name: str) -> None:
        folder = Path(os.environ.get("SFUMATO_SCREENSHOTS") or folder)
        self.page.screenshot(path=folder / name, full_page=True, timeout=PATIENCE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["certified", "naked"])
def test_it_is_quiet_self_contained_and_accessible(
    name: str, scheme: str, browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    visit = Visit(browser, pages[name], viewport=WIDE, color_scheme=scheme)
    found = axe.Axe().run(visit.page).response["violations"]
    serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")]
    assert not serious
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith("data:image/png")] == [pages[name].as_uri()]
    assert visit.page.evaluate("document.images[0].naturalWidth") > 100
    visit.keep(tmp_path, f"{name}-{scheme}.png")
    visit.page.close()


@pytest.mark.parametrize("name", ["certified", "naked"])
def test_a_phone_shows_it_without_scrolling_sideways(
    name: str, browser: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    visit = Visit(browser, pages[name], viewport=PHONE, color_scheme="light")
    assert visit.wider_than_the_screen() == 0
    small = "[...document.querySelectorAll('p, li, td, th')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 12)"
    assert visit.page.evaluate(f"{small}.length") == 0
    visit.keep(tmp_path, f"{name}-phone.png")
    visit.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<div style=\"width:500px\">wide</div>')")
    assert visit.wider_than_the_screen() > 0  # the measure can fail
    visit.page.close()


def test_links_lead_to_places_on_the_page(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["certified"], viewport=WIDE)
    links = visit.page.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert len(links) >= 9
    assert all(link.startswith("#") and visit.page.query_selector(link) for link in links)
    visit.page.close()


def test_paper_is_white_and_leaves_nothing_out(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    visit = Visit(browser, pages["certified"], viewport=WIDE, color_scheme="dark")
    visit.page.emulate_media(media="print", color_scheme="dark")
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not visit.page.is_visible(".contents")
    for section in ("pictures", "protected", "guarantee", "use", "load", "asked", "assumptions", "check", "files"):
        assert visit.page.is_visible(f"#{section} h2")
    cut = "[...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert visit.page.evaluate(cut) == 0
    visit.keep(tmp_path, "print.png")
    visit.page.close()
