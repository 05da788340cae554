"""The app in a real browser: what a reader does, from the address in the terminal to a rated pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from backtalk.rating.folder import own_answers, read_ratings
from backtalk.web.server import AppServer
from tests.report.samples import finding
from tests.web.browser import say, watched
from tests.web.worlds import TARGETS, commit, finish, make_ratings, open_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two audits of the same sentences: 8 hits before, 6 after; and pairs to rate."""
    root = tmp_path_factory.mktemp("served")
    unlikely = [finding(target, tokens=[-9.0] * 5) for target in TARGETS[:2]]
    finish(root / "after", findings=[*unlikely, *(finding(target) for target in TARGETS[2:])])
    finish(root / "before")
    make_ratings(root / "pairs")
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[AppServer]:
    with served(root) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: AppServer) -> Iterator[Page]:
    with watched(browser, server.address) as (page, _):
        yield page


def open_run_page(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_url("**/run/**")


def test_the_token_leaves_the_address(page: Page) -> None:
    assert "token" not in page.url
    assert page.title().startswith("Runs")


def test_without_the_token_there_is_one_sentence(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address.partition("?")[0]) as (page, watch):
        assert "the terminal printed" in page.inner_text("main")
        watch.expect("401")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("alert(1)", "dialog"),
        ("fetch('https://example.invalid/').catch(() => 0)", "policy breached: connect-src"),
        ("{ const i = new Image(); i.src = 'https://example.invalid/x.png' }", "policy breached: img-src"),
        (
            "document.body.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))",
            "style",
        ),
        ("try { document.body.innerHTML = '<b>x</b>' } catch { 0 }", "policy breached: require-trusted"),
        ("try { document.body.setAttribute('onclick', 'alert(1)') } catch { 0 }", "policy breached"),
    ],
)
def test_the_policy_holds_and_a_breach_is_seen(
    browser: Browser, server: AppServer, script: str, said: str
) -> None:
    """What the other tests lean on: that they would notice."""
    with watched(browser, server.address) as (page, watch):
        page.evaluate(f"() => {{ {script} }}")
        page.evaluate("new Promise(requestAnimationFrame)")
        watch.expect(said)
        watch.faults.clear()


def test_a_run_opens_with_its_answer_first(page: Page) -> None:
    open_run_page(page, "after")
    assert "6 of 8" in page.inner_text("header")
    assert page.locator("#cases > details").count() == 8


def test_findings_are_filtered_sought_and_counted(page: Page) -> None:
    open_run_page(page, "after")
    page.locator("select[name=show]").select_option("misses")
    page.wait_for_url("**show=misses**")
    assert page.locator("#cases > details").count() == 2
    assert page.inner_text("#counted") == "1 to 2 of 2"
    page.get_by_role("searchbox").fill("boring 1")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=boring**")
    assert page.locator("#cases > details").count() == 1


def test_a_finding_opens_and_has_a_link_that_stays(page: Page) -> None:
    open_run_page(page, "after")
    first = page.locator("#cases > details").first
    first.locator("summary").click()
    assert first.locator("svg.words").first.is_visible()
    link = first.get_by_role("link", name="link to this finding").get_attribute("href")
    assert link is not None
    sentence = first.locator(".sentence").inner_text()
    page.goto(urljoin(page.url, link))
    assert page.locator("#cases > details").count() == 1
    assert page.locator("#cases > details[open] .sentence").inner_text() == sentence


def test_sentences_are_masked_until_asked_and_the_browser_remembers(page: Page) -> None:
    open_run_page(page, "after")
    sentence = page.locator("#cases .sentence").first
    assert "b*****" in sentence.inner_text()
    assert "boring" not in page.inner_text("#cases")
    page.get_by_text("Show the sentences").click()
    assert "boring" in sentence.inner_text()
    page.reload()
    assert "boring" in page.locator("#cases .sentence").first.inner_text()
    page.get_by_text("Show the sentences").click()
    page.reload()
    assert "b*****" in page.locator("#cases .sentence").first.inner_text()


def test_two_runs_are_compared(page: Page) -> None:
    page.locator("select[name=before]").select_option(label="before")
    page.locator("select[name=after]").select_option(label="after")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare**")
    text = page.inner_text("body")
    assert "2 fixed" in text
    assert "8" in text
    assert page.locator(".case").count() == 8


def test_the_command_of_a_run_can_be_copied(browser: Browser, server: AppServer, root: Path) -> None:
    with watched(browser, server.address, permissions=["clipboard-read", "clipboard-write"]) as (page, _):
        page.get_by_role("button", name="Copy command of after").click()
        page.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"backtalk audit --hit io-sample-avg-k1 --out {root / 'after'}"


def test_chatting_shows_each_words_probability(page: Page) -> None:
    page.get_by_role("link", name="Chat").click()
    say(page, "What you say", "hello there")
    words = page.locator(".words-said li")
    words.nth(2).wait_for()
    assert words.all_inner_texts() == ["hello\n50%", "there\n25%", "(end)\n13%"]
    assert "1 in 64" in page.inner_text(".whole-reply")
    say(page, "What you say", "<img src=x onerror=alert(1)>")
    page.get_by_text("<img", exact=False).first.wait_for()
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".utterance").count() == 0


def test_a_model_that_fails_is_said_and_the_words_are_not_lost(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, watch):
        page.get_by_role("link", name="Chat").click()
        page.get_by_label("What you say").fill("please fail")
        page.get_by_role("button", name="Say").click()
        page.get_by_role("alert").filter(has_text="the model failed").wait_for()
        assert page.get_by_label("What you say").input_value() == "please fail"
        watch.expect("502")


def test_a_new_conversation_during_a_slow_reply_is_undisturbed(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, watch):
        slow: list[Route] = []
        page.route("**/api/chat", lambda route: route.continue_() if slow else slow.append(route))
        page.get_by_role("link", name="Chat").click()
        with page.expect_request("**/api/chat"):
            say(page, "What you say", "the first")
        page.get_by_role("button", name="New conversation").click()
        say(page, "What you say", "the second")
        page.locator(".utterance.model").wait_for()
        page.get_by_label("What you say").fill("half a sen")
        with page.expect_response("**/api/chat"):
            slow[0].fulfill(status=502, json={"error": "too late"})
        page.evaluate("new Promise((done) => setTimeout(done))")  # what waits for the answer runs first
        assert page.locator("#problem").is_hidden()
        assert page.get_by_label("What you say").input_value() == "half a sen"
        assert page.locator(".utterance").count() == 2
        watch.expect("502")


def test_words_typed_while_a_reply_fails_are_kept(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, watch):
        slow: list[Route] = []
        page.route("**/api/chat", lambda route: slow.append(route))
        page.get_by_role("link", name="Chat").click()
        with page.expect_request("**/api/chat"):
            say(page, "What you say", "the first")
        page.get_by_label("What you say").fill("half a sen")
        slow[0].fulfill(status=502, json={"error": "it broke"})
        page.get_by_role("alert").filter(has_text="it broke").wait_for()
        assert page.get_by_label("What you say").input_value() == "half a sen"
        watch.expect("502")


def test_pairs_are_rated_by_keyboard(page: Page, root: Path) -> None:
    page.get_by_role("link", name="Rate").click()
    page.get_by_role("link", name="pairs").click()
    page.locator("#rater:focus").wait_for()
    page.keyboard.type("anna")
    page.keyboard.press("Enter")
    page.get_by_text("Pair 1 of 4").wait_for()
    assert page.inner_text("#input") == "input 0"
    for number, key in ((2, "1"), (3, "2"), (2, "u"), (3, "t"), (4, "s")):
        page.keyboard.press(key)
        page.get_by_text(f"Pair {number} of 4").wait_for()
    page.locator(".choice").nth(1).click()
    page.get_by_text("All pairs are judged").wait_for()
    answers = [answer for answer in own_answers(read_ratings(root / "pairs")) if answer.rater == "anna"]
    assert [answer.choice for answer in answers] == ["1", "2", "undo", "tie", "skip", "2"]


def test_a_key_counts_as_soon_as_a_pair_is_there(page: Page) -> None:
    """A hidden field keeps the focus until the browser draws again; a key in that moment is an answer too."""
    page.get_by_role("link", name="Rate").click()
    page.get_by_role("link", name="pairs").click()
    page.locator("#rater:focus").wait_for()
    page.evaluate(
        """() => new MutationObserver((_, once) => {
            once.disconnect();
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "t", bubbles: true }));
        }).observe(document.getElementById("who"), { attributes: true, attributeFilter: ["hidden"] })"""
    )
    say(page, "Your name", "a quick rater")
    page.get_by_text("Pair 2 of 4").wait_for()


def test_a_held_key_and_a_double_click_judge_one_pair(page: Page, root: Path) -> None:
    page.get_by_role("link", name="Rate").click()
    page.get_by_role("link", name="pairs").click()
    say(page, "Your name", "heavy hand")
    page.get_by_text("Pair 1 of 4").wait_for()
    page.keyboard.down("1")
    page.get_by_text("Pair 2 of 4").wait_for()
    page.keyboard.down("1")  # as the keyboard repeats it
    page.keyboard.up("1")
    page.locator(".choice").nth(1).click()
    page.get_by_text("Pair 3 of 4").wait_for()
    page.locator(".choice").nth(1).dispatch_event("click", {"detail": 2})
    page.keyboard.press("s")
    page.get_by_text("Pair 4 of 4").wait_for()
    answers = [one.choice for one in own_answers(read_ratings(root / "pairs")) if one.rater == "heavy hand"]
    assert answers == ["1", "2", "skip"]


def test_a_second_tab_of_a_rater_goes_on_after_the_first(browser: Browser, server: AppServer) -> None:
    with watched(browser, server.address) as (page, watch):
        tabs = [page, page.context.new_page()]
        for tab in tabs:
            tab.goto(f"{server.address.partition('/?')[0]}/rate")
            tab.get_by_role("link", name="pairs").click()
            say(tab, "Your name", "two tabs")
            tab.get_by_text("Pair 1 of 4").wait_for()
        for number in (2, 3):
            tabs[0].keyboard.press("t")
            tabs[0].get_by_text(f"Pair {number} of 4").wait_for()
        tabs[1].keyboard.press("t")
        tabs[1].get_by_text("Pair 3 of 4").wait_for()
        assert "judged already" in tabs[1].get_by_role("alert").inner_text()
        tabs[1].keyboard.press("t")
        tabs[1].get_by_text("Pair 4 of 4").wait_for()
        watch.expect("409")


def test_a_running_audit_is_seen_to_move(browser: Browser, tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "now") as run,
        served(tmp_path) as server,
        watched(browser, server.address) as (page, _),
    ):
        row = page.locator("tr", has_text="now")
        assert "running" in row.inner_text()
        commit(run, 0)
        row.get_by_text("2 of 8").wait_for()
        with open_run(tmp_path / "later", TARGETS[:2]):
            page.get_by_role("link", name="later").wait_for()
        open_run_page(page, "now")
        page.get_by_text("At work: 2 of 8 tried.").wait_for()
        assert page.locator("#cases > details").count() == 2
        opened = page.locator("#cases > details").first
        opened.locator("summary").click()
        name = opened.get_attribute("id")
        commit(run, 1)
        page.get_by_text("At work: 4 of 8 tried.").wait_for()
        page.locator("#cases > details").nth(3).wait_for()
        assert page.locator(f"#{name}[open]").count() == 1  # what was open stays open
        commit(run, 2)
        commit(run, 3)
        run.set_state("finished")
        page.get_by_text("At work").wait_for(state="detached")
        page.locator("#cases > details").nth(7).wait_for()


def test_a_page_made_just_before_the_run_ends_is_made_anew(browser: Browser, tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "now") as run,
        served(tmp_path) as server,
        watched(browser, server.address) as (page, _),
    ):
        commit(run, 0)

        def end_first(route: Route) -> None:
            if run.state == "running":
                for block in (1, 2, 3):
                    commit(run, block)
                run.set_state("finished")
            route.continue_()

        page.route("**/api/run/*", end_first)
        open_run_page(page, "now")
        page.locator("#cases > details").nth(7).wait_for()


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Skip")
    seen: list[str] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
    assert {"Runs", "Chat", "Rate", "before", "Copy command of befo"} <= set(seen)
    open_run_page(page, "after")
    summary = page.locator("#cases summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#cases > details[open]").count() == 1
    page.locator("#show").focus()
    page.keyboard.press("Space")
    assert "boring" in summary.inner_text()


def test_a_conversation_of_several_turns_is_shown_as_one(browser: Browser, tmp_path: Path) -> None:
    from backtalk.types import SpokenTurn

    turns = (SpokenTurn("user", "hello"), SpokenTurn("model", "hi there"), SpokenTurn("user", "and now"))
    finish(tmp_path / "talk", TARGETS[:2], [replace(finding(target), turns=turns) for target in TARGETS[:2]])
    with served(tmp_path) as server, watched(browser, server.address) as (page, _):
        open_run_page(page, "talk")
        page.locator("#cases summary").first.click()
        said = page.locator("#cases > details[open] .turns li").all_inner_texts()
        assert [text.split("\n")[-1] for text in said[:3]] == ["hello", "hi there", "and now"]
