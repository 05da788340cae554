"""Played conversations in the app: sought, linked and compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from backtalk.cli.showing import show_run
from backtalk.runs.gates import Gates
from backtalk.runs.summary import stamp_of
from backtalk.store import Run
from backtalk.store.folder import ADVERSARY, UNTUNED
from backtalk.store.records import AdversaryRecord, write_training
from backtalk.types import Finding
from backtalk.web.run_list import key_of
from backtalk.web.server import AppServer
from tests.web.browser import watched
from tests.web.worlds import OPENINGS, Client, finish, play, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RUN = f"/run/{key_of('one')}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    root: Path = tmp_path_factory.mktemp("played")
    play(root / "one", rude=(1, 4))
    play(root / "two", rude=(4, 5))
    play(root / "apart", openings=["of something else"])
    finish(root / "no-talk")
    with served(root) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: AppServer) -> Iterator[Page]:
    with watched(browser, server.address) as (page, _):
        page.goto(server.address.partition("/?")[0] + RUN)
        yield page


def shown(page: Page) -> list[str]:
    names = page.locator("#cases > details").evaluate_all("all => all.map(one => one.id)")
    return [str(name).removeprefix("f-") for name in names]


def test_conversations_are_sought_filtered_and_sorted(page: Page) -> None:
    assert set(shown(page)[:2]) == {"o-1", "o-4"}  # hits first
    assert page.locator("#counted").inner_text() == "1 to 8 of 8"
    page.locator("select[name=show]").select_option("hits")
    page.wait_for_url("**show=hits**")
    assert set(shown(page)) == {"o-1", "o-4"}
    page.locator("select[name=show]").select_option("all")
    page.wait_for_url("**show=all**")
    page.get_by_role("searchbox").fill("FINE lake 3")  # in a reply, and in the opening
    page.keyboard.press("Enter")
    page.wait_for_url("**q=FINE**")
    assert shown(page) == ["o-3"]
    page.get_by_role("searchbox").fill("")
    page.locator("select[name=sort]").select_option("input")
    page.wait_for_url("**sort=input**")
    assert shown(page)[0] == "o-0"  # its prompts cost least


def test_openings_are_not_masked_and_toxic_turns_are(page: Page) -> None:
    page.get_by_role("button", name="Open all").click()
    text = page.inner_text("#cases")
    assert OPENINGS[1] in text
    assert "utter fool" not in text
    assert "silly goose" not in text
    page.get_by_text("Show toxic turns in full").click()
    assert "you utter fool" in page.inner_text("#f-o-1")


def test_a_link_leads_to_its_conversation(page: Page) -> None:
    page.locator("#f-o-4 summary").click()
    link = page.locator("#f-o-4").get_by_role("link", name="link to this conversation").get_attribute("href")
    assert link is not None
    page.goto(urljoin(page.url, link))
    assert shown(page) == ["o-4"]
    assert page.locator("#f-o-4[open]").count() == 1


def test_pages_of_conversations_follow_each_other(server: AppServer) -> None:
    client = Client(server).enter()
    seen = [client.ask("GET", f"{RUN}?limit=3&from={start}")[2].decode() for start in (0, 3, 6)]
    assert [page.count("<details class=") for page in seen] == [3, 3, 2]
    assert "from=3&amp;limit=3" in seen[0]


@pytest.mark.parametrize("head", ["its own", "the app's"])
def test_a_page_is_shown_from_stored_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    folder = play(tmp_path / "one")
    play(tmp_path / "one" / UNTUNED, rude=())
    if head == "its own":
        with Run.open(folder) as run:
            show_run(run, Gates())
    read: list[Path] = []
    usual = Run.findings

    def findings(run: Run) -> list[Finding]:
        read.append(run.folder)
        return usual(run)

    with served(tmp_path) as server:
        client = Client(server).enter()
        if head == "the app's":
            client.ask("GET", RUN)
        monkeypatch.setattr(Run, "findings", findings)
        shown = client.ask("GET", RUN)[2]
        assert shown.count(b'<details class="case') == len(OPENINGS)
        assert b"you utter fool" in shown
        assert shown.count(b"<li>") == 2, "the untuned adversary stands beside it"
        assert read == []


def test_a_report_follows_the_training_and_the_run_inside(tmp_path: Path) -> None:
    """Both change what is shown, and neither changes the run itself."""
    folder = play(tmp_path / "one")
    stamps = [stamp_of(folder)]
    write_training(folder / ADVERSARY, AdversaryRecord(seconds=3.0))
    stamps.append(stamp_of(folder))
    play(folder / UNTUNED, rude=())
    stamps.append(stamp_of(folder))
    with Run.open(folder / UNTUNED, write=True) as run:
        run.set_state("stopped")
    assert len({*stamps, stamp_of(folder)}) == 4


def test_two_are_compared_by_toxicity_and_their_openings_are_shown(
    browser: Browser, server: AppServer
) -> None:
    with watched(browser, server.address) as (page, _):
        address = f"/compare?before={key_of('one')}&after={key_of('two')}"
        page.goto(server.address.partition("/?")[0] + address)
        assert "Of 8 openings 2 led to a reply rated 0.5 or more before and 2 after" in page.inner_text(
            "h1 + p"
        )
        assert page.locator("#rates ~ .scroll tbody th code").all_inner_texts() == [
            "toxic-0.5",
            "toxic-0.5+likely",
        ]
        page.get_by_role("button", name="Open all").click()
        text = page.inner_text("#cases")
        assert OPENINGS[1] in text
        assert "it was sunny" in text  # masked are the toxic turns alone
        assert "utter fool" not in text
        assert "silly goose" not in text
        page.get_by_text("Show toxic turns in full").click()
        assert "utter fool" in page.inner_text("#cases")
        assert "sentence" not in page.inner_text("main")
