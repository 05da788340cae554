"""The file in a real browser: found, opened, unmasked, exported, linked, printed; hostile text never runs."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.report.record import Report
from backtalk.report.run_page import render_run
from backtalk.report.spreadsheet import csv_lines, row_of
from backtalk.wording import mask
from tests.hostile import HUGE, hostile_cases
from tests.report.samples import report_of, sample_report
from tests.web.browser import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOWN = "#cases > details:visible"


@pytest.fixture(scope="module")
def report() -> Report:
    return sample_report()


@pytest.fixture(scope="module")
def address(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("file") / "report.html"
    path.write_text(render_run(report), encoding="utf-8")
    return path.as_uri()


def ids(page: Page) -> list[str]:
    names = page.locator(SHOWN).evaluate_all("all => all.map(one => one.id)")
    return [str(name).removeprefix("f-") for name in names]


def test_what_is_sought_filtered_and_sorted_is_shown(browser: Browser, address: str, report: Report) -> None:
    with watched(browser, address) as (page, _):
        assert ids(page) == [case.id for case in report.cases]
        page.locator("[name=show]").select_option("hits")
        assert ids(page) == [case.id for case in report.cases if case.hit]
        page.get_by_role("searchbox").fill("Regret")
        expected = [case.id for case in report.cases if case.hit and "regret" in case.target]
        assert ids(page) == expected
        assert page.locator("#counted").text_content() == f"{len(expected)} of {len(report.cases)} shown"
        page.get_by_role("searchbox").fill("")
        page.locator("[name=show]").select_option("all")
        page.locator("[name=category]").select_option(label="refusing")
        page.locator("[name=sort]").select_option("likeliest")
        refusing = [case for case in report.cases if case.category == "refusing"]
        falling = sorted(refusing, key=lambda case: -(case.log_prob if case.log_prob is not None else -1e9))
        assert ids(page) == [case.id for case in falling]
        page.locator("[name=meets]").select_option("o-greedy")
        assert ids(page) == []
        assert page.locator("#counted").text_content() == f"0 of {len(report.cases)} shown"


def test_a_finding_opens_by_keyboard_and_shows_its_words(
    browser: Browser, address: str, report: Report
) -> None:
    with watched(browser, address) as (page, _):
        first = page.locator("#cases > details").first
        assert not first.locator(".body").is_visible()
        first.locator("summary").focus()
        page.keyboard.press("Enter")
        assert first.locator(".body").is_visible()
        assert first.locator("svg.words g").count() == len(report.cases[0].words or [])
        first.locator("a.link").focus()
        page.keyboard.press("Escape")
        assert not first.locator(".body").is_visible()
        assert page.evaluate("document.activeElement.closest('details').id") == report.cases[0].anchor
        page.keyboard.press("Enter")
        assert "T_out -3.20" in (first.locator("svg.words").first.text_content() or "")
        page.get_by_text("Open all").click()
        assert page.locator("#cases > details[open]").count() == len(report.cases)


def test_a_conversation_is_shown_turn_by_turn(browser: Browser, address: str, report: Report) -> None:
    (case,) = (case for case in report.cases if len(case.trigger or []) > 1)
    with watched(browser, f"{address}#{case.anchor}") as (page, _):
        turns = page.locator(f"#{case.anchor} .turns li .long")
        assert [text.strip() for text in turns.all_inner_texts()][:-1] == case.trigger
        assert turns.count() == len(case.trigger or []) + 1


def test_the_mask_is_off_when_asked_and_stays_so(browser: Browser, address: str, report: Report) -> None:
    sentence = report.cases[0].target
    with watched(browser, address) as (page, _):
        text = page.locator("#cases .sentence").first
        assert text.inner_text().strip() == mask(sentence)
        assert sentence not in page.locator("body").inner_text()
        page.locator("#show").focus()
        page.keyboard.press("Space")
        assert text.inner_text().strip() == sentence
        page.reload()
        assert page.locator("#show").is_checked()
        assert page.locator("#cases .sentence").first.inner_text().strip() == sentence
        page.get_by_text("Show the sentences").click()
        page.reload()
        assert text.inner_text().strip() == mask(sentence)


def test_a_link_opens_its_finding(browser: Browser, address: str, report: Report) -> None:
    case = report.cases[20]
    with watched(browser, f"{address}#{case.anchor}") as (page, _):
        assert page.locator(f"#{case.anchor}").get_attribute("open") is not None
        page.locator(f"#{case.anchor} a.link").click()
        assert page.url.endswith(f"#{case.anchor}")
        page.goto(f"{address}#f-<img src=x onerror=alert(1)>")
        page.goto(f"{address}#%E0%A4%A")


def test_what_is_shown_is_what_is_exported(
    browser: Browser, address: str, report: Report, tmp_path: Path
) -> None:
    with watched(browser, address) as (page, _):
        page.locator("[name=show]").select_option("hits")
        hits = [case for case in report.cases if case.hit]
        for kind, lines in (("CSV", csv_lines(hits)), ("JSONL", (json.dumps(row_of(case)) for case in hits))):
            with page.expect_download() as waiting:
                page.get_by_role("button", name=kind, exact=True).click()
            waiting.value.save_as(tmp_path / kind)
            got = (tmp_path / kind).read_text(encoding="utf-8")
            if kind == "CSV":
                assert list(csv.reader(got.splitlines())) == list(csv.reader(lines))
            else:
                assert [json.loads(line) for line in got.splitlines()] == [json.loads(line) for line in lines]


def test_on_paper_there_are_no_buttons_and_no_scrolling(browser: Browser, address: str) -> None:
    with watched(browser, address, color_scheme="dark") as (page, _):
        page.locator("#cases summary").first.click()
        page.emulate_media(media="print")
        assert page.locator("#cases .sentence").first.is_visible()
        assert page.locator("#cases .body").first.is_visible()
        assert page.locator("#cases .words .bar").first.is_visible()
        assert not page.locator(".seek").is_visible()
        assert page.locator("button:visible, .pill:visible").count() == 0
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator(".long").first.evaluate("one => getComputedStyle(one).maxHeight") == "none"


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_nothing_is_wider_than_the_window(browser: Browser, address: str, width: int) -> None:
    with watched(browser, address, viewport={"width": width, "height": 900}) as (page, _):
        page.get_by_text("Open all").click()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0


def test_hostile_text_is_only_text(browser: Browser, tmp_path: Path) -> None:
    targets, findings = hostile_cases()
    report = report_of(
        targets, findings, model="<script>alert(1)</script>", command="'><svg onload=alert(1)>"
    )
    path = tmp_path / "report.html"
    path.write_text(render_run(report), encoding="utf-8")
    with watched(browser, path.as_uri()) as (page, _):
        page.get_by_text("Show the sentences").click()
        page.get_by_text("Open all").click()
        assert page.locator(SHOWN).count() + page.locator("#brief tr").count() == len(targets)
        assert (
            page.locator("#cases script, #cases img, #cases iframe, #cases form, #cases style").count() == 0
        )
        assert page.locator("script").count() == 2
        page.get_by_role("searchbox").fill("<script>alert(1)</script>")
        sought = re.compile(r"<script>alert\(1\)</script>")
        for text in page.locator(f"{SHOWN} .sentence").all_inner_texts():
            assert sought.search(text)
        page.get_by_role("searchbox").fill("")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="CSV", exact=True).click()
        waiting.value.save_as(tmp_path / "findings.csv")
        rows = list(csv.DictReader((tmp_path / "findings.csv").read_text(encoding="utf-8").splitlines()))
        assert len(rows) == len(targets)
        assert not any(
            row[name].lstrip()[:1] in tuple("=+-@＝") for row in rows for name in ("target", "reply")
        )
        assert max(len(row["target"]) for row in rows) < len(HUGE[0])
