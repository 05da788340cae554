"""The pictures of the README: real audits of the embedded model, looked at in a real browser.

`python -m tests.web.pictures FOLDER` writes them; with `--all` every page at three widths, light and dark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from backtalk.cli import run
from backtalk.registry import load_model
from backtalk.web.run_list import key_of
from tests.web.browser import chromium, say, watched
from tests.web.worlds import (
    COMPARED,
    commit,
    harden,
    make_ratings,
    open_run,
    play,
    served,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (1440, 768, 390)


def make_runs(root: Path) -> None:
    """Two audits of the same sentences, by search and by chance."""
    for name, search in (("by-chance", "random"), ("by-search", "gibbs")):
        status = run(["audit", "--search", search, "--out", str(root / name)])
        assert status == 0, status


def make_the_rest(root: Path) -> dict[str, str]:
    """A page of every other kind, made up: to be looked at, not to be shown."""
    make_ratings(root / "pairs")
    play(root / "played")
    play(root / "played-again", rude=(2, 4))
    harden(root / "hard")
    with open_run(root / "killed") as run:
        commit(run, 0)
    open_run(root / "nothing-yet").close()
    (root / "begun").mkdir()
    (root / "begun" / "hardening.json").write_text('{"model": "chitchat"}')
    return {
        "compare": f"/compare?before={key_of('by-chance')}&after={key_of('by-search')}",
        "rate": f"/rate/{key_of('pairs')}",
        "ratings": "/rate",
        "none-match": f"/run/{key_of('by-search')}?q=nothing",
        "killed": f"/run/{key_of('killed')}",
        "nothing-yet": f"/run/{key_of('nothing-yet')}",
        "waiting": f"/run/{key_of('begun')}",
        "played": f"/run/{key_of('played')}",
        "compare-played": f"/compare?before={key_of('played')}&after={key_of('played-again')}",
        "hardening": f"/run/{key_of('hard')}",
        "compare-hardened": COMPARED,
    }


def prepare(page: Page, name: str) -> None:
    """What a reader would have opened."""
    if name in {"report", "file", "compare", "played", "compare-played"}:
        page.locator("#cases summary").first.click()
    if name == "chat":
        for text in ("hello there", "what do you do for fun?"):
            before = page.locator(".utterance.model").count()
            say(page, "What you say", text)
            page.locator(".utterance.model").nth(before).wait_for(timeout=60_000)
    if name == "rate":
        say(page, "Your name", "anna")
        page.get_by_text("Pair 1 of").wait_for()


def main(folder: Path, everything: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "runs"
        make_runs(root)
        pages = {"runs": "/", "report": f"/run/{key_of('by-search')}", "chat": "/chat"}
        if everything:
            pages |= make_the_rest(root)
        schemes = ("light", "dark") if everything else ("light",)
        with chromium() as browser, served(root, load_model("chitchat", "cpu")) as server:
            home = server.address.partition("/?")[0]
            for scheme in schemes:
                for width in WIDTHS if everything else WIDTHS[:1]:
                    view = {"width": width, "height": 900}
                    with watched(browser, server.address, viewport=view, color_scheme=scheme) as (page, _):
                        for name, address in pages.items():
                            page.goto(home + address)
                            prepare(page, name)
                            page.evaluate("scrollTo(0, 0)")  # opening a finding scrolled to it
                            label = f"{name}-{width}-{scheme}" if everything else name
                            path = folder / f"{label}.png"
                            page.screenshot(path=path, full_page=everything)
                            if name == "report" and not everything:
                                page.locator("#cases > details").first.screenshot(path=folder / "finding.png")
                    if everything:
                        file = (root / "by-search" / "report.html").as_uri()
                        with watched(browser, file, viewport=view, color_scheme=scheme) as (page, _):
                            prepare(page, "file")
                            page.screenshot(path=folder / f"file-{width}-{scheme}.png", full_page=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--all" in sys.argv[2:])
