"""Pages for everyone: axe-core finds no serious violation, light or dark, wide or narrow; nothing is wider than
the screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.web.server import AppServer
from backtalk.web.shelf import key_of
from tests.web.browser import AXE, watched
from tests.web.worlds import commit, finish, make_ratings, open_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COMPARE = f"/compare?before={key_of('one')}&after={key_of('two')}"
PAGES = {
    "list": "/",
    "run": f"/run/{key_of('one')}",
    "running": f"/run/{key_of('now')}",
    "compare": COMPARE,
    "chat": "/chat",
    "rate": f"/rate/{key_of('pairs')}",
    "ratings": "/rate",
    "problem": "/nothing",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    root: Path = tmp_path_factory.mktemp("access")
    finish(root / "one")
    finish(root / "two")
    make_ratings(root / "pairs")
    with open_run(root / "now") as run, served(root) as server:
        commit(run, 0)
        yield server


def prepare(page: Page, name: str) -> None:
    """Shows what a page has only once it is used."""
    for summary in page.locator("summary:visible").all():
        summary.click()
    if name == "chat":
        page.get_by_label("What you say").fill("hello there, how are you")
        page.keyboard.press("Enter")
        page.locator(".words-said").wait_for()
    if name == "rate":
        page.get_by_label("Your name").fill("anna")
        page.keyboard.press("Enter")
        page.get_by_text("Pair 1 of").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser: Browser, server: AppServer, name: str, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; make browser")
    settings = {"color_scheme": scheme, "viewport": {"width": 1440, "height": 900}}
    with watched(browser, server.address, **settings) as (page, watch):
        page.goto(page.url.rstrip("/") + PAGES[name])
        prepare(page, name)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run({resultTypes: ['violations']}).then((r) => r.violations)")
        serious = [
            f"{one['id']}: {one['nodes'][0]['html'][:160]}: {one['nodes'][0]['failureSummary'][:300]}"
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]
        assert serious == []
        if name == "problem":
            watch.expect("404")


@pytest.mark.parametrize("width", [1440, 768, 390])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_its_screen(browser: Browser, server: AppServer, name: str, width: int) -> None:
    with watched(browser, server.address, viewport={"width": width, "height": 800}) as (page, watch):
        page.goto(page.url.rstrip("/") + PAGES[name])
        prepare(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if name == "problem":
            watch.expect("404")
