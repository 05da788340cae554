"""A hundred thousand findings: the app's first page comes within a second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backtalk.cli.showing import show_run
from backtalk.runs.gates import Gates
from backtalk.store import Run
from backtalk.web.run_list import key_of
from tests.report.bulk import make_run
from tests.web.browser import watched
from tests.web.worlds import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FINDINGS = 100_000


@pytest.mark.slow
def test_a_run_of_100_000_findings_is_paged_through(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "bulk"
    make_run(folder, FINDINGS)
    with Run.open(folder) as run:
        show_run(run, Gates())
    assert (folder / "report.html").stat().st_size < 10_000_000
    with served(tmp_path) as server, watched(browser, server.address) as (page, _):
        home = f"{server.address.partition('/?')[0]}/run/{key_of('bulk')}"
        for question in ("", "?sort=likeliest", "?q=boring&show=hits", "?from=99950"):
            begun = time.perf_counter()
            page.goto(home + question, wait_until="domcontentloaded")
            assert time.perf_counter() - begun < 1, question
            assert page.locator("#cases > details").count() == 50
