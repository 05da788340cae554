"""The app's pages, and the reports in it, whose findings are looked up in the run's database. jinja2 escapes
every value, and styles and scripts are files of ours."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader

from backtalk.errors import InputError
from backtalk.hardening.folder import MODEL, SUMMARY, read_record
from backtalk.models.transformer.library import file_hash
from backtalk.report.comparison import compare_runs
from backtalk.report.hardening_page import render_hardening
from backtalk.report.hardening_record import Row, read_hardening, read_summary
from backtalk.report.page import App as Frame
from backtalk.report.page import page_environment, read_part, render, style_sheet
from backtalk.report.risk_page import render_risk
from backtalk.report.risk_record import RiskEstimate
from backtalk.report.run_page import render_comparison, render_run
from backtalk.report.stored_findings import Query, StoredFindings
from backtalk.risk.estimate import estimate
from backtalk.runs.summary import ReportHead, read_head, stamp_of
from backtalk.store import Run
from backtalk.store.folder import kind_of
from backtalk.web.run_list import Item

NAV = (("Runs", "/"), ("Chat", "/chat"), ("Rate", "/rate"))
TEMPLATES = ("list.html", "chat.html", "ratings.html", "rate.html", "waiting.html", "problem.html")
SCRIPTS = ("app.js", "list.js", "chat.js", "rate.js", "run.js")
ABOVE = 3  # levels above an audit at which its hardening may be: OUT/audits/MODEL/AUDIT
_read = partial(read_part, package="backtalk.web")


def render_page(
    template: str, path: str, *scripts: str, section: str = "", stamp: str = "", **values: Any
) -> str:
    """The page at `path` in the frame of the app; `section` is its menu entry, if that is another page."""
    app = frame(path, "app.js", *scripts, section=section, stamp=stamp)
    return render(_environment(), template, app, **values)


def frame(path: str, *scripts: str, section: str = "", **values: Any) -> Frame:
    """The frame of a page: menu, style and scripts."""
    return Frame(
        nav=[(label, link(path, to)) for label, to in NAV],
        here=link(path, section or path),
        root=link(path, "/"),
        style=link(path, "/static/page.css"),
        scripts=[link(path, f"/static/{name}") for name in scripts],
        **values,
    )


def link(path: str, to: str) -> str:
    """A relative link from one page to another: pages do not know the secret path that they lie below."""
    up = "../" * (path.count("/") - 1) or "./"
    return up + to.removeprefix("/")


def read_static(name: str) -> str | None:
    """A file under /static/; None if there is none."""
    if name == "page.css":
        return style_sheet() + _read("app.css")
    if name == "page.js":
        return read_part(name)
    return _read(name) if name in SCRIPTS else None


@cache
def _environment() -> Environment:
    own = FunctionLoader(lambda name: _read(name) if name in TEMPLATES else None)
    return page_environment().overlay(loader=ChoiceLoader([own, FunctionLoader(read_part)]))


# Reports


class Reports:
    """Keeps the heads of the reports that it has shown."""

    def __init__(self) -> None:
        self._heads: dict[Path, ReportHead] = {}
        self._risks: dict[Path, tuple[str, RiskEstimate]] = {}  # with the stamps that they were read at
        self._lock = threading.Lock()

    def run(self, folder: Path, item: Item, values: Mapping[str, str]) -> str:
        """The page of an audit, with the findings that match the query. `item` was read before the findings,
        so that the page notices a change in between."""
        head, here = self._head(folder), f"/run/{item.key}"
        with closing(StoredFindings(folder, head.report)) as findings:
            page = findings.page(Query.of(values))
            app = frame(here, "page.js", "app.js", "run.js", cases=head.cases, stamp=item.stamp, shown=page)
            return render_run(head.report, app)

    def risk(self, folder: Path, item: Item) -> str:
        """The page of a risk estimate, by its draws until now."""
        known = self._risks.get(folder)
        if known is None or known[0] != item.stamp:
            with Run.open(folder, verb="risk") as run:
                known = self._risks[folder] = item.stamp, estimate(run)
        app = frame(f"/run/{item.key}", "page.js", "app.js", "run.js", stamp=item.stamp)
        return render_risk(known[1], app)

    def comparison(self, before: Path, after: Path, here: str) -> str:
        """Two runs side by side, with the cost of their hardening if they belong to one."""
        cost = None
        for folder in [one for one in before.parents[:ABOVE] if one in after.parents[:ABOVE]]:
            if kind_of(folder) == "hardening":
                with suppress(InputError):  # not finished yet
                    cost = read_hardening(read_summary(folder)).cost_table
        return render_comparison(compare_runs(before, after), frame(here, "page.js"), cost)

    def hardening(self, folder: Path, here: str, links: Sequence[tuple[str, str]]) -> str:
        """The page of a hardening, which is refused if its weights are not those of its proof."""
        if (folder / MODEL).exists() and (folder / SUMMARY).exists():
            read_record(folder, file_hash)
        return render_hardening(read_summary(folder), frame(here, "page.js"), links)

    def _head(self, folder: Path) -> ReportHead:
        with self._lock:  # two tabs do not build the same report twice
            known = self._heads.get(folder)
            if known is None or known.stamp != stamp_of(folder):
                known = self._heads[folder] = read_head(folder)
            return known


def proofs_of(folder: Path) -> list[Row]:
    """The proof of a hardening; empty if it is not finished or can't be read."""
    with suppress(InputError):
        return read_hardening(read_summary(folder)).proof
    return []
