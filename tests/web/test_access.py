"""For everyone: axe-core finds no serious violation, light or dark; no page is wider than its screen; and the
Tab key goes to all that can be used, in its order, and shows where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.report.comparison import compare_runs
from backtalk.report.hardening_page import render_hardening
from backtalk.report.hardening_record import read_hardening
from backtalk.report.record import Report
from backtalk.report.run_page import render_comparison, render_run
from backtalk.store.exchanges import finding_of
from backtalk.web.run_list import key_of
from backtalk.web.server import AppServer
from tests.report.samples import sample_report
from tests.report.test_conversations import exchange, report_of
from tests.report.test_folder_pages import HARDENING
from tests.web.browser import AXE, Watch, say, watched
from tests.web.worlds import (
    COMPARED,
    OPENINGS,
    TARGETS,
    commit,
    finish,
    harden,
    make_ratings,
    open_run,
    play,
    served,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COMPARE = f"/compare?before={key_of('one')}&after={key_of('two')}"
PLAYED = f"/compare?before={key_of('played')}&after={key_of('played-again')}"
PAGES = {
    "list": "/",
    "run": f"/run/{key_of('one')}",
    "running": f"/run/{key_of('now')}",
    "finding": f"/run/{key_of('one')}?finding=f-t-3",
    "none match": f"/run/{key_of('one')}?q=nothing",
    "empty": f"/run/{key_of('empty')}",
    "compare": COMPARE,
    "played": f"/run/{key_of('played')}",
    "compare played": PLAYED,
    "hardening": f"/run/{key_of('hard')}",
    "compare hardened": COMPARED,
    "waiting": f"/run/{key_of('begun')}",
    "chat": "/chat",
    "rate": f"/rate/{key_of('pairs')}",
    "ratings": "/rate",
    "problem": "/nothing",
}


FILES: dict[str, Callable[[Path], str]] = {
    "run": lambda _: render_run(few(sample_report())),
    "played": lambda _: render_run(played_report()),
    "compare": lambda folder: render_comparison(
        compare_runs(finish(folder / "before", TARGETS[:4]), finish(folder / "after", TARGETS[:4])),
        cost=read_hardening(HARDENING).cost_table,
    ),
    "hardening": lambda _: render_hardening(HARDENING),
}
"""Those that stand alone, from the same templates."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    root: Path = tmp_path_factory.mktemp("access")
    finish(root / "one", TARGETS[:4])
    finish(root / "two", TARGETS[:4])
    make_ratings(root / "pairs")
    play(root / "played", openings=OPENINGS[:5])
    play(root / "played-again", rude=(2, 4), openings=OPENINGS[:5])
    harden(root / "hard")
    open_run(root / "empty").close()
    (root / "begun").mkdir()
    (root / "begun" / "hardening.json").write_text('{"model": "chitchat"}')
    with open_run(root / "now") as run, served(root) as server:
        commit(run, 0)
        yield server


@pytest.fixture(scope="module")
def window(browser: Browser, server: AppServer) -> Iterator[tuple[Page, Watch]]:
    """One window goes from page to page: to open one, and to read axe-core into it, took half of the time."""
    with watched(browser, server.address) as (page, watch):
        yield page, watch


@pytest.fixture(scope="module")
def file_window(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Watch]]:
    with watched(browser, tmp_path_factory.mktemp("files").as_uri()) as (page, watch):
        yield page, watch


def few(report: Report) -> Report:
    """axe looks at every finding, and they are alike."""
    return replace(report, cases=report.cases[:6])


def played_report() -> Report:
    """With an untuned adversary beside it."""
    rude = finding_of("rude", ["hello"], [exchange(0.1), exchange(0.9, reply=" you utter fool")], 1)
    mild = finding_of("mild", ["good day"], [exchange(0.2, 2.5), exchange(0.1)], 2)
    return report_of([rude, mild], {"untuned": [mild]})


def prepare(page: Page, name: str) -> None:
    """Shows what a page has only once it is used."""
    for summary in page.locator("summary:visible").all()[:4]:
        summary.click()
    if name == "chat":
        say(page, "What you say", "hello there, how are you")
        page.locator(".words-said").wait_for()
    if name == "rate":
        say(page, "Your name", "anna")
        page.get_by_text("Pair 1 of").wait_for()


def visit(page: Page, watch: Watch, address: str) -> None:
    """Opens a page as a new window would."""
    watch.faults.clear()
    page.set_viewport_size({"width": 1440, "height": 800})
    page.emulate_media(color_scheme="light")
    page.goto(address)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everyone(window: tuple[Page, Watch], server: AppServer, name: str) -> None:
    page, watch = window
    visit(page, watch, server.address.partition("/?")[0] + PAGES[name])
    if name == "problem":
        watch.expect("404")
    prepare(page, name)
    check(page)
    watch.check(page)


@pytest.mark.parametrize("name", FILES)
def test_so_is_a_file(file_window: tuple[Page, Watch], name: str, tmp_path: Path) -> None:
    page, watch = file_window
    path = tmp_path / "page.html"
    path.write_text(FILES[name](tmp_path), encoding="utf-8")
    visit(page, watch, path.as_uri())
    prepare(page, name)
    check(page)
    watch.check(page)


STOPS = """() => [...document.querySelectorAll(
  'a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')]
  .filter((one) => !one.disabled && one.checkVisibility({visibilityProperty: true}))
  .filter((one) => one.type !== "radio" || one.checked)
  .map((one, place) => { one.dataset.stop = place; return place; })"""
"""Numbers all that the Tab key should reach."""
HERE = """() => {
  const one = document.activeElement;
  const seen = getComputedStyle(one).opacity === "0" ? one.nextElementSibling : one;
  const style = getComputedStyle(seen);
  const shown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [one.dataset.stop ?? null, shown, one.outerHTML.slice(0, 120)];
}"""
MOST_STOPS = 60


def walk(page: Page) -> None:
    """Presses Tab from the top of the page."""
    stops = page.evaluate(STOPS)[:MOST_STOPS]
    page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
    for stop in stops:
        page.keyboard.press("Tab")
        here, shown, what = page.evaluate(HERE)
        assert here == str(stop), what
        assert shown, f"no focus to be seen: {what}"


def check(page: Page) -> None:
    walk(page)
    for width in (1440, 768, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; make browser")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for scheme, rules in (("light", ""), ("dark", "runOnly: ['color-contrast'], ")):
        page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
        found = page.evaluate(f"axe.run({{{rules}resultTypes: ['violations']}}).then((r) => r.violations)")
        serious = [
            f"{one['id']}: {one['nodes'][0]['html'][:160]}: {one['nodes'][0]['failureSummary'][:300]}"
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]
        assert serious == [], scheme
