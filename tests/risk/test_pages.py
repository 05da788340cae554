"""A risk estimate in the app, and a page that no text can break out of."""

from __future__ import annotations

from pathlib import Path

import pytest

import backtalk
from backtalk.report.risk_page import render_risk
from backtalk.store import Run
from backtalk.web.app import App, Request
from backtalk.web.chat import PageChat
from backtalk.web.run_list import RunList
from tests.risk.worlds import TARGETS, tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_app_lists_and_shows_an_estimate() -> None:
    found = backtalk.risk(
        tiny_model(), list(TARGETS), draws=300, proposal="none", out="runs/one", device="cpu", block=100
    )
    runs = RunList(Path("runs"))
    (item,) = runs.items()
    assert (item.kind, item.state, item.done, item.total) == ("risk", "finished", 300, 300)
    assert "per 1e+06" in item.result
    assert item.command.startswith("backtalk risk ")
    app = App(runs, PageChat("tiny", tiny_model))
    page = app.respond(Request("GET", f"/run/{item.key}", "")).body.decode()
    assert "How often will" in page
    assert f"{found.draws:,}" in page
    assert app.respond(Request("GET", "/", "")).status == 200


def test_an_estimate_without_a_draw_waits() -> None:
    backtalk.risk(tiny_model(), list(TARGETS), draws=30, proposal="none", out="runs/one", device="cpu")
    with Run.open(Path("runs/one"), write=True, verb="risk") as run:
        run._database.execute("DROP TABLE draws")
        run.set_state("running")
    runs = RunList(Path("runs"))
    (item,) = runs.items()
    assert (item.state, item.done) == ("waiting", 0)
    app = App(runs, PageChat("tiny", tiny_model))
    page = app.respond(Request("GET", f"/run/{item.key}", "")).body.decode()
    assert "no draw is done yet" in page


def test_texts_are_escaped_and_masked_on_the_page() -> None:
    Path("turns.txt").write_text("<script>alert(1)</script> you fool\n")
    Path("words.txt").write_text("fool\n")
    say = lambda conversation: str(conversation[-1]["text"])  # noqa: E731
    given = {"hit": "toxic-0.5", "scorer": "words:words.txt", "inputs": "turns.txt", "out": "r"}
    page = render_risk(backtalk.risk(say, **given))  # type: ignore[arg-type]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "y** f***" in page
