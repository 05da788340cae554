"""A run as a page of the app: the report's own templates, over findings looked up in the run's database."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from backtalk.errors import InputError
from backtalk.hardening.folder import MODEL, SUMMARY, read_record
from backtalk.models.transformer.cache import file_hash
from backtalk.report.comparison_page import render_comparison
from backtalk.report.cost import read_cost
from backtalk.report.folders import kind_of, read_summary, render_folder
from backtalk.report.hardening_record import ProofRow, read_hardening
from backtalk.report.page import App as Frame
from backtalk.report.record import Report
from backtalk.report.run_page import Offer, render_run
from backtalk.report.spreadsheet import csv_lines, jsonl_lines
from backtalk.report.stored_findings import Query, StoredFindings
from backtalk.runs.compare import compare_runs
from backtalk.runs.summary import ReportHead, read_head, stamp_of, with_others
from backtalk.store import Run
from backtalk.web.http import HttpError
from backtalk.web.run_list import Item

NAV = (("Runs", "/"), ("Chat", "/chat"), ("Rate", "/rate"))
ABOVE = 3
"""Folders above an audit among which its hardening is: OUT/audits/MODEL/AUDIT."""
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
    """Keeps the heads of the reports that it has shown."""

    def __init__(self) -> None:
        self._heads: dict[Path, ReportHead] = {}
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
        head = self._head(folder)
        with closing(StoredFindings(folder, head.report)) as findings:
            here = f"/run/{item.key}"
            app = replace(
                frame(here, "page.js", "app.js", "run.js"),
                cases=head.cases,
                export=link(here, f"{here}/findings"),
                stamp=item.stamp,
            )
            report, problem = head.report, ""
            chosen = [str(path) for offer, path in (others or {}).items() if offer.chosen]
            if chosen and report.conversations:
                try:
                    report = _with_others(folder, findings, chosen)
                except InputError as error:
                    problem = str(error)
            shown = replace(app, shown=findings.page(Query.of(said)))
            return render_run(report, shown, offers=list(others or {}), problem=problem)

    def export(self, folder: Path, said: Mapping[str, str]) -> tuple[str, Iterator[bytes]]:
        """(content type, lines) of all findings that match, read as they are sent."""
        if said.get("as") not in EXPORTS:
            raise HttpError(404, "findings can be had as csv or jsonl")
        kind, lines = EXPORTS[said["as"]]
        findings = StoredFindings(folder, self._head(folder).report)  # refused before the first line

        def send() -> Iterator[bytes]:
            with closing(findings):
                for line in lines(findings.matching(Query.of(said))):
                    yield line.encode("utf-8", "replace")

        return kind, send()

    def comparison(self, before: Path, after: Path, here: str) -> str:
        """Two runs side by side; with what it cost where they are of one hardening."""
        cost = None
        for folder in [one for one in before.parents[:ABOVE] if one in after.parents[:ABOVE]]:
            if kind_of(folder) == "hardening":
                with suppress(InputError):  # not finished yet
                    cost = read_cost(read_summary(folder))
        return render_comparison(compare_runs(before, after), frame(here, "page.js"), cost)

    def folder(self, folder: Path, here: str, links: Sequence[tuple[str, str]]) -> str:
        """The page of a hardening, which is refused where its weights are not those of its proof."""
        if kind_of(folder) == "hardening" and (folder / MODEL).exists() and (folder / SUMMARY).exists():
            read_record(folder, file_hash)
        return render_folder(folder, frame(here, "page.js"), links)

    def _head(self, folder: Path) -> ReportHead:
        with self._one_at_a_time:  # two tabs do not build the same report twice
            known = self._heads.get(folder)
            if known is None or known.stamp != stamp_of(folder):
                known = self._heads[folder] = read_head(folder)
            return known


def _with_others(folder: Path, findings: StoredFindings, chosen: Sequence[str]) -> Report:
    """The report of a run with other runs beside it."""
    with Run.open(folder) as run:
        return with_others(run, replace(findings.report, cases=list(findings.matching(Query()))), chosen)


def proofs_of(folder: Path) -> list[ProofRow]:
    """The proof of a hardening; none where it is not finished, or its record can't be read."""
    with suppress(InputError):
        return read_hardening(read_summary(folder)).proof
    return []
