"""The page of played conversations in a real browser: opened, unmasked, filtered; hostile text never runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from backtalk.exchanges import finding_of
from backtalk.report.talks_page import render_talks
from tests.hostile import MARKUP
from tests.report.test_talks import exchange, report_of
from tests.web.browser import chromium, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHOWN = "#cases > details:visible"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A rude conversation, then one for each hostile text, beside an untuned adversary of a hostile name."""
    rude = finding_of("rude", ["hello"], [exchange(0.1), exchange(0.9, reply=" you utter fool")], 1)
    hostile = [
        finding_of(f"hostile-{i}", [text], [exchange(0.1, said=text, reply=text, second=0.2)], 1)
        for i, text in enumerate(MARKUP)
    ]
    path = tmp_path_factory.mktemp("file") / "report.html"
    report = report_of([rude, *hostile], {"untuned": [rude], MARKUP[0]: hostile})
    path.write_text(render_talks(report), encoding="utf-8")
    return path.as_uri()


def test_conversations_open_unmask_and_filter(browser: Browser, address: str) -> None:
    with watched(browser, address) as (page, _):
        assert page.locator(SHOWN).count() == 1 + len(MARKUP)
        page.get_by_role("button", name="Open all").click()
        assert "y** u**** f***" in page.inner_text("#f-rude .trail")
        page.get_by_text("Show toxic turns in full").click()
        assert "you utter fool" in page.inner_text("#f-rude .trail")
        page.get_by_text("Hits only").click()
        assert page.locator(SHOWN).evaluate_all("all => all.map(one => one.id)") == ["f-rude"]


def test_a_link_opens_its_conversation_and_hostile_text_is_text(browser: Browser, address: str) -> None:
    with watched(browser, f"{address}#f-hostile-0") as (page, _):
        assert page.locator("#f-hostile-0[open]").count() == 1
        page.get_by_role("button", name="Open all").click()
        assert page.locator("#cases script, #cases img, #cases iframe, #cases style").count() == 0


def test_a_narrow_screen_needs_no_scrolling_sideways(browser: Browser, address: str) -> None:
    with watched(browser, address, viewport={"width": 360, "height": 800}) as (page, _):
        page.get_by_role("button", name="Open all").click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
