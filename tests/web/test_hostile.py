"""Texts that try to break out, as targets, triggers, replies, roles, categories, notes and names: in a real
browser, in the app and in the file, nothing of them ever runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from backtalk.rating.folder import blind
from backtalk.report.run_page import render_run
from backtalk.runs.summary import read_results
from backtalk.store import Run
from backtalk.types import Access, Dialogue
from backtalk.web.server import AppServer
from tests.hostile import HOSTILE, MARKUP, hostile_cases
from tests.web.browser import say, watched
from tests.web.worlds import finish, served, write_blinded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


INSIDE = ", ".join(f"#cases {name}" for name in ("script", "img", "iframe", "style", "form", "input"))


class Echo:
    """Says each hostile text in turn."""

    name = fingerprint = "<script>alert('a name')</script>"
    access = Access.TEXT

    def __init__(self) -> None:
        self.said = 0

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        self.said += 1
        return [MARKUP[self.said % len(MARKUP)] for _ in dialogues]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    targets, findings = hostile_cases()
    markup = "<img src=x onerror=alert(2)>"
    finish(root / f"run {markup}", targets, findings, model=markup)
    few = len(HOSTILE)
    finish(root / "other", targets[:few], findings[:few], model="{{ 7 * 7 }}\x1b[31m\u202e")
    folder = root / "pairs <b onclick=alert(4)>"
    texts = list(HOSTILE)
    blinded = blind(texts, texts[1:] + texts[:1], texts[2:] + texts[:2], seed=1, identical_ties=False)
    write_blinded(folder, blinded)
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[AppServer]:
    with served(root, Echo()) as server:
        yield server


def touch_everything(page: Page) -> None:
    """Opens all that opens, shows what is hidden, and points at it: handlers would fire."""
    opened = page.locator("summary:visible").evaluate_all("all => all.map((one) => one.click()).length")
    assert opened
    page.mouse.move(200, 200)
    page.mouse.move(400, 500)


@pytest.mark.parametrize("start", [0, 50])
def test_hostile_findings_are_text_in_the_app(browser: Browser, server: AppServer, start: int) -> None:
    with watched(browser, server.address) as (page, _):
        page.goto(page.locator("tbody a[href^='./run/run-']").evaluate("a => a.href") + f"?from={start}")
        page.get_by_text("Show the sentences").click()
        touch_everything(page)
        shown = page.locator("#cases > details").count()
        assert shown == (50 if start == 0 else len(HOSTILE) + 2 - 50)
        assert (
            page.locator("#cases script, #cases img, #cases iframe, #cases style, #cases form").count() == 0
        )
        assert not any(c in page.content() for c in "\x1b\u202e\u200b\x9b")


def test_hostile_findings_are_text_in_the_file(browser: Browser, root: Path, tmp_path: Path) -> None:
    with Run.open(next(root.glob("run *"))) as run:
        (tmp_path / "report.html").write_text(render_run(read_results(run).report), encoding="utf-8")
    with watched(browser, (tmp_path / "report.html").as_uri()) as (page, _):
        page.get_by_text("Show the sentences").click()
        touch_everything(page)
        assert (
            page.locator("#cases script, #cases img, #cases iframe, #cases style, #cases form").count() == 0
        )


def test_hostile_names_and_comparisons_are_text(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, _):
        assert "<img src=x onerror=alert(2)>" in page.inner_text("#runs")
        with page.expect_response("**/api/runs"):  # the list is made anew by the script
            pass
        page.get_by_role("button", name="Compare").click()
        page.wait_for_url("**/compare**")
        touch_everything(page)


def seeks(text: str, address: str) -> bool:
    return parse_qs(urlsplit(address).query).get("q") == [text]


def test_hostile_words_are_sought_as_words(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, _):
        page.goto(page.locator("tbody a[href^='./run/']").first.evaluate("a => a.href"))
        for text in (
            "<script>alert(1)</script>",
            '" autofocus onfocus="alert(1)" x="',
            "%' OR 1=1 --",
            "\u202e",
        ):
            page.get_by_role("searchbox").fill(text)
            page.keyboard.press("Enter")
            page.wait_for_url(partial(seeks, text))
            page.get_by_role("searchbox").wait_for()


def test_a_hostile_model_is_text_on_the_chat_page(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, _):
        page.get_by_role("link", name="Chat").click()
        assert "<script>" in page.inner_text("h1")
        for number, text in enumerate(MARKUP):
            say(page, "What you say", text)
            page.locator(".utterance.model").nth(number).wait_for()
        assert page.locator("#talk img, #talk script, #talk iframe").count() == 0


def test_hostile_pairs_are_text_on_the_rate_page(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, _):
        page.get_by_role("link", name="Rate").click()
        page.locator("main a").first.click()
        say(page, "Your name", "anna")
        total = int(page.get_by_text("Pair 1 of ").inner_text().split()[-1])
        for number in range(2, total + 1):
            page.keyboard.press("t")
            page.get_by_text(f"Pair {number} of").wait_for()
        assert page.locator("#pair img, #pair script, #pair iframe").count() == 0
