"""A run as a page of the app: the report's own templates, over findings that are looked up in an index."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from backtalk.compare import compare_runs
from backtalk.errors import InputError
from backtalk.outcome import make_talks, open_index, summarise
from backtalk.report.comparison_page import render_comparison
from backtalk.report.cost import read_cost
from backtalk.report.folders import kind_of, read_summary, render_folder
from backtalk.report.page import App as Frame
from backtalk.report.page import render_run
from backtalk.report.rows import FindingsPage, Index, Query, page_of_findings
from backtalk.report.spreadsheet import csv_lines, jsonl_lines
from backtalk.report.talks import TalkReport
from backtalk.report.talks_page import Offer, matching_talks, render_talks
from backtalk.serving.wire import Problem
from backtalk.store import Run
from backtalk.web.shelf import Item

NAV = (("Runs", "/"), ("Chat", "/chat"), ("Rate", "/rate"))
EXPORTS = {"csv": ("text/csv; charset=utf-8", csv_lines), "jsonl": ("application/jsonl", jsonl_lines)}


def link(page: str, to: str) -> str:
    """From one page of the app to another, both from "/" on. Links are relative: the pages do not know the
    secret path that they lie below."""
    up = "../" * (page.count("/") - 1) or "./"
    return up + to.removeprefix("/")


def frame(page: str, *scripts: str, section: str = "") -> Frame:
    """What every page of the app has around it; `section` is the page of the menu that it belongs to, unless
    it is that page itself."""
    return Frame(
        nav=[(label, link(page, to)) for label, to in NAV],
        here=link(page, section or page),
        root=link(page, "/"),
        style=link(page, "/static/page.css"),
        scripts=[link(page, f"/static/{name}") for name in scripts],
    )


class Views:
    """Keeps the indexes that it makes, for runs that have none, in a folder of its own until it ends."""

    def __init__(self) -> None:
        self._spare = tempfile.TemporaryDirectory(prefix="backtalk-")
        self._one_at_a_time = threading.Lock()

    def run(
        self,
        folder: Path,
        item: Item,
        said: Mapping[str, str],
        others: Mapping[Offer, Path] | None = None,
    ) -> str:
        """The page of an audit, with the findings that the request asks for. `item` was read before them, so
        that what ends meanwhile is seen by the page. `others` are the runs that may stand beside one of
        played conversations."""
        with self._index(folder) as index:
            here = f"/run/{item.key}"
            app = replace(
                frame(here, "page.js", "app.js", "run.js"),
                cases=index.cases,
                export=link(here, f"{here}/findings"),
                stamp=item.stamp,
            )
            if _was_played(index):
                return self._talks(folder, index, app, Query.of(said), others or {})
            return render_run(index.report, replace(app, shown=page_of_findings(index, said)))

    def _talks(
        self, folder: Path, index: Index, app: Frame, query: Query, others: Mapping[Offer, Path]
    ) -> str:
        chosen = [str(path) for offer, path in others.items() if offer.chosen]
        problem = ""
        try:
            report = _read_talks(folder, chosen)
        except InputError as error:
            if not chosen:
                raise
            report, problem = _read_talks(folder), str(error)
        cases = matching_talks(index, report, query)
        shown = FindingsPage(query, len(cases), cases[query.offset : query.offset + query.limit])
        return render_talks(report, replace(app, shown=shown), offers=list(others), problem=problem)

    def export(self, folder: Path, said: Mapping[str, str]) -> tuple[str, Iterator[bytes]]:
        """(content type, lines) of all findings that match, read as they are sent."""
        if said.get("as") not in EXPORTS:
            raise Problem(404, "findings can be had as csv or jsonl")
        kind, lines = EXPORTS[said["as"]]
        index = self._index(folder)  # what can't be opened is refused before the first line

        def send() -> Iterator[bytes]:
            with index:
                query = Query.of(said)
                cases = (
                    matching_talks(index, _read_talks(folder), query)
                    if _was_played(index)
                    else index.matching(query)
                )
                for line in lines(cases):
                    yield line.encode("utf-8", "replace")

        return kind, send()

    def comparison(self, before: Path, after: Path, here: str) -> str:
        """Two runs side by side; with what it cost where they are of one hardening."""
        cost, parent = None, before.parent
        if parent == after.parent and kind_of(parent) == "hardening":
            with suppress(InputError):  # not finished yet
                cost = read_cost(read_summary(parent))
        return render_comparison(compare_runs(before, after), frame(here, "page.js"), cost)

    def folder(self, folder: Path, here: str, links: Sequence[tuple[str, str]]) -> str:
        """The page of a hardening, an enumeration or a study."""
        return render_folder(folder, frame(here, "page.js"), links)

    def close(self) -> None:
        self._spare.cleanup()

    def _index(self, folder: Path) -> Index:
        with self._one_at_a_time:  # two tabs do not make the same index twice
            return open_index(folder, Path(self._spare.name))


def _was_played(index: Index) -> bool:
    return bool(index.report.run.get("search") == "ast")


def _read_talks(folder: Path, beside: Sequence[str] = ()) -> TalkReport:
    with Run.open(folder) as run:
        findings = run.findings()
        return make_talks(run, summarise(run, findings), findings, beside)


def parts_of_hardening(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """(name of the list, run before, run after) for what is there of a hardening's audits."""
    for name, suffix in (("held out", ""), ("trained against", "-train")):
        before, after = folder / f"before{suffix}", folder / f"after{suffix}"
        if before.is_dir() and after.is_dir():
            yield name, before, after
