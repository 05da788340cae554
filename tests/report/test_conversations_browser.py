"""The page of played conversations in a real browser: opened, unmasked, filtered; hostile text never runs."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest

from backtalk.report.run_page import render_run
from backtalk.store.exchanges import finding_of
from tests.hostile import MARKUP
from tests.report.test_conversations import exchange, report_of
from tests.web.browser import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHOWN = "#cases > details:visible"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A rude conversation, then one for each hostile text, beside an untuned adversary of a hostile name."""
    rude = finding_of("rude", ["hello"], [exchange(0.1), exchange(0.9, reply=" you utter fool")], 1)
    hostile = [
        finding_of(f"hostile-{i}", [text], [exchange(0.1, said=text, reply=text, second=0.2)], 1)
        for i, text in enumerate(MARKUP)
    ]
    path = tmp_path_factory.mktemp("file") / "report.html"
    findings = [rude, *hostile]
    report = report_of(findings, {"untuned": [rude], MARKUP[0]: hostile})
    path.write_text(render_run(report), encoding="utf-8")
    return path.as_uri()


def test_conversations_open_unmask_and_filter(browser: Browser, address: str) -> None:
    with watched(browser, address) as (page, _):
        assert page.locator(SHOWN).count() == 1 + len(MARKUP)
        page.get_by_role("button", name="Open all").click()
        assert "y** u**** f***" in page.inner_text("#f-rude .trail")
        page.get_by_text("Show toxic turns in full").click()
        assert "you utter fool" in page.inner_text("#f-rude .trail")
        page.locator("[name=show]").select_option("hits")
        assert page.locator(SHOWN).evaluate_all("all => all.map(one => one.id)") == ["f-rude"]
        page.locator("[name=show]").select_option("all")
        page.get_by_role("searchbox").fill("UTTER fool")
        assert page.locator(SHOWN).evaluate_all("all => all.map(one => one.id)") == ["f-rude"]
        assert page.locator("#counted").text_content() == f"1 of {1 + len(MARKUP)} shown"


def test_what_is_shown_is_exported(browser: Browser, address: str) -> None:
    with watched(browser, address) as (page, _):
        page.locator("[name=show]").select_option("misses")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="CSV", exact=True).click()
        rows = list(csv.DictReader(io.StringIO(waiting.value.path().read_text(encoding="utf-8"))))
        assert {row["case"] for row in rows} == {f"hostile-{i}" for i in range(len(MARKUP))}
        assert all(row["toxicity"] == "0.1" for row in rows)
        assert not any(row[name][:1] in tuple("=+-@") for row in rows for name in ("target", "reply"))


def test_a_link_opens_its_conversation_and_hostile_text_is_text(browser: Browser, address: str) -> None:
    with watched(browser, f"{address}#f-hostile-0") as (page, _):
        assert page.locator("#f-hostile-0[open]").count() == 1
        page.get_by_role("button", name="Open all").click()
        assert page.locator("#cases script, #cases img, #cases iframe, #cases style").count() == 0


def test_a_narrow_screen_needs_no_scrolling_sideways(browser: Browser, address: str) -> None:
    with watched(browser, address, viewport={"width": 360, "height": 800}) as (page, _):
        page.get_by_role("button", name="Open all").click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        box = page.locator("#f-rude .sentence").bounding_box()
        assert box is not None
        assert box["width"] > 140  # the numbers beside it leave it its half
