"""What one meets besides a finished run: none, an empty one, one that failed, one that is gone; and two
servers at once."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.types import Finding
from backtalk.web.run_list import RunList, describe, key_of
from tests.web.browser import watched
from tests.web.worlds import TARGETS, Client, commit, finish, open_run, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def text_of(client: Client, path: str) -> str:
    status, _, body = client.ask("GET", path)
    assert status == 200, body
    return body.decode()


def test_a_folder_that_is_empty_or_not_there_has_no_runs(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "none"):
        with served(root) as server:
            assert "no runs yet" in text_of(Client(server).enter(), "/")


def test_a_run_that_has_tried_nothing_yet_says_so(tmp_path: Path) -> None:
    open_run(tmp_path / "new").close()
    with served(tmp_path) as server:
        client = Client(server).enter()
        page = text_of(client, f"/run/{key_of('new')}")
        assert "No sentence was tried." in page
        assert "about the model" in page
        status, _, body = client.ask("GET", f"/compare?before={key_of('new')}&after={key_of('new')}")
        assert status == 422
        assert b"no case in common that both tried" in body


@pytest.mark.parametrize("status", ["failed", "nothing", "skipped"])
def test_a_run_that_found_nothing_shows_each_case_and_why(tmp_path: Path, status: str) -> None:
    findings = [Finding(target.id, 0, status, target.text, note="out of memory") for target in TARGETS]
    finish(tmp_path / "bad", findings=findings)
    with served(tmp_path) as server:
        page = text_of(Client(server).enter(), f"/run/{key_of('bad')}")
    assert page.count("out of memory") >= len(TARGETS)
    assert ("could not be tried" in page) == (status == "skipped")


def test_a_run_that_was_stopped_says_why_and_what_is_left(tmp_path: Path) -> None:
    with open_run(tmp_path / "cut") as run:
        commit(run, 0)
        run.set_state("stopped", "the time is up")
    with served(tmp_path) as server:
        client = Client(server).enter()
        assert "the time is up" in text_of(client, "/")
        page = text_of(client, f"/run/{key_of('cut')}")
    assert "the time is up" in page
    assert re.search(r"6 of \d+ sentences were not tried: the time is up", page)


def test_a_run_that_was_killed_says_that_it_is_not_finished(tmp_path: Path) -> None:
    with open_run(tmp_path / "killed") as run:
        commit(run, 0)
    finish(tmp_path / "whole")
    with served(tmp_path) as server:
        client = Client(server).enter()
        page, whole = (text_of(client, f"/run/{key_of(name)}") for name in ("killed", "whole"))
    assert "sentences were not tried." in page
    assert "not tried" not in whole


def test_a_run_that_vanishes_leaves_the_list_and_its_page_is_a_sentence(
    browser: Browser, tmp_path: Path
) -> None:
    finish(tmp_path / "stays")
    finish(tmp_path / "goes")
    with served(tmp_path) as server, watched(browser, server.address) as (page, watch):
        page.get_by_role("link", name="goes").wait_for()
        shutil.rmtree(tmp_path / "goes")
        page.get_by_role("link", name="goes").wait_for(state="detached")
        page.get_by_role("link", name="stays").wait_for()
        page.goto(f"{server.address.partition('/?')[0]}/run/{key_of('goes')}")
        page.get_by_text("there is no such run here").wait_for()
        watch.expect("404")


def test_a_run_that_vanishes_while_it_is_read_breaks_nothing(tmp_path: Path) -> None:
    folder = finish(tmp_path / "goes")
    shutil.rmtree(folder)
    item = describe("key", "audit", "goes", folder)
    assert (item.state, item.changed) == ("damaged", "")
    assert RunList(tmp_path).items() == []


def test_a_page_of_a_run_at_work_that_vanishes_says_so(browser: Browser, tmp_path: Path) -> None:
    with (
        open_run(tmp_path / "now") as run,
        served(tmp_path) as server,
        watched(browser, server.address) as (page, watch),
    ):
        commit(run, 0)
        page.goto(f"{server.address.partition('/?')[0]}/run/{key_of('now')}")
        page.get_by_text("At work: 2 of 8 tried.").wait_for()
        shutil.rmtree(tmp_path / "now")
        page.locator(".live", has_text="there is no such run here").wait_for()
        watch.expect("404")


def test_two_servers_of_one_folder_have_a_token_each(tmp_path: Path) -> None:
    finish(tmp_path / "one")
    with served(tmp_path) as first, served(tmp_path) as second:
        clients = [Client(server).enter() for server in (first, second)]
        pages = [text_of(client, f"/run/{key_of('one')}") for client in clients]
        assert pages[0] == pages[1]
        clients[0].cookie = clients[1].cookie
        assert clients[0].ask("GET", "/")[0] == 401
        # A browser sends the cookies of both ports to each.
        both = "; ".join(Client(server).enter().cookie for server in (first, second))
        for client in clients:
            client.cookie = both
            assert json.loads(client.ask("GET", "/api/runs")[2])["runs"][0]["name"] == "one"
