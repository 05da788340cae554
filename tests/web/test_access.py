"""For everyone: axe-core finds no serious violation, light or dark, and no page is wider than its screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.web.server import AppServer
from backtalk.web.shelf import key_of
from tests.web.browser import AXE, Watch, watched
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
    for summary in page.locator("summary:visible").all()[:4]:
        summary.click()
    if name == "chat":
        page.get_by_label("What you say").fill("hello there, how are you")
        page.keyboard.press("Enter")
        page.locator(".words-said").wait_for()
    if name == "rate":
        page.get_by_label("Your name").fill("anna")
        page.keyboard.press("Enter")
        page.get_by_text("Pair 1 of").wait_for()


def visit(page: Page, watch: Watch, server: AppServer, name: str) -> None:
    page.goto(server.address.partition("/?")[0] + PAGES[name])
    if name == "problem":
        watch.expect("404")
    prepare(page, name)


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser: Browser, server: AppServer, name: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; make browser")
    with watched(browser, server.address, viewport={"width": 1280, "height": 800}) as (page, watch):
        visit(page, watch, server, name)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run({resultTypes: ['violations']}).then((r) => r.violations)")
        page.emulate_media(color_scheme="dark")
        dark = "axe.run({runOnly: ['color-contrast'], resultTypes: ['violations']}).then((r) => r.violations)"
        serious = [
            f"{one['id']}: {one['nodes'][0]['html'][:160]}: {one['nodes'][0]['failureSummary'][:300]}"
            for one in found + page.evaluate(dark)
            if one["impact"] in {"serious", "critical"}
        ]
        assert serious == []


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_no_page_is_wider_than_its_screen(browser: Browser, server: AppServer, width: int) -> None:
    with watched(browser, server.address, viewport={"width": width, "height": 800}) as (page, watch):
        for name in PAGES:
            visit(page, watch, server, name)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
