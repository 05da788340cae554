"""The index: the report's findings, sought, filtered and sorted as a plain loop would; quick for many."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli.showing import show_run
from backtalk.report.page import App
from backtalk.report.record import CaseRow, Report
from backtalk.report.rows import Index, Query, stamp_of, write_index
from backtalk.report.run_page import render_run
from backtalk.runs import summary as outcome
from backtalk.runs.gates import Gates
from backtalk.runs.summary import finish_run, make_report, open_index, summarise
from backtalk.store import Run
from backtalk.store.exchanges import finding_of
from backtalk.store.folder import INDEX
from backtalk.store.typed import read_record
from tests.hostile import hostile_cases
from tests.report.bulk import make_run, sentence, trigger
from tests.report.samples import report_of, sample_report
from tests.report.test_talks import exchange
from tests.report.test_talks import report_of as talks_of
from tests.web.worlds import commit, open_run


def indexed(report: Report, folder: Path) -> Index:
    write_index(folder / INDEX, report, "stamp")
    return Index(folder / INDEX, "stamp")


def played_report() -> Report:
    played = [finding_of(name, ["hello", name], [exchange(0.7, second=0.2)] * 2, 1) for name in ("a", "b")]
    return talks_of(played, {"untuned": played[:1]})


REPORTS = {
    "sentences": sample_report,
    "hostile": lambda: report_of(*hostile_cases()),
    "conversations": played_report,
}


@pytest.mark.parametrize("kind", REPORTS)
def test_every_case_comes_back_as_it_was(tmp_path: Path, kind: str) -> None:
    report = REPORTS[kind]()
    with indexed(report, tmp_path) as index:
        assert list(index.matching(Query())) == report.cases
        assert index.cases == len(report.cases)
        assert index.report == replace(report, cases=[], skipped=report.skipped[:50])


@pytest.mark.parametrize("kind", ["sentences", "conversations"])
def test_the_record_is_rebuilt_from_its_json(kind: str) -> None:
    report = REPORTS[kind]()
    assert read_record(Report, json.loads(json.dumps(report.as_dict()))) == report


@pytest.mark.parametrize(
    "change", [{"hit": 1}, {"severity": "3"}, {"words": {}}, {"words": [1]}, {"id": None}]
)
def test_a_record_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    case = json.loads(json.dumps(sample_report().as_dict()["cases"][0]))
    with pytest.raises(ValueError, match=r"expected|not an object"):
        read_record(CaseRow, case | change)
    with pytest.raises(ValueError, match="missing"):
        read_record(CaseRow, {})


QUERIES: dict[str, tuple[dict[str, str], Callable[[CaseRow], bool]]] = {
    "all": ({}, lambda case: True),
    "hits": ({"show": "hits"}, lambda case: case.hit),
    "misses": ({"show": "misses"}, lambda case: not case.hit),
    "said": ({"show": "said"}, lambda case: case.said),
    "category": ({"category": "1"}, lambda case: case.category == "refusing"),
    "no category": ({"category": "99"}, lambda case: False),
    "criterion": (
        {"meets": "o-sample-avg-k2"},
        lambda case: "o-sample-avg-k2" in [*(case.holds or []), *(case.holds_elsewhere or [])],
    ),
    "part of a criterion's name": ({"meets": "o-sample-avg"}, lambda case: False),
    "words": ({"q": "YOU wrong"}, lambda case: "you are wrong" in case.target),
    "an id": ({"q": "mal-013"}, lambda case: case.id == "mal-013"),
    "one": ({"finding": "f-mal-013"}, lambda case: case.id == "mal-013"),
    "both": ({"show": "hits", "q": "boring"}, lambda case: case.hit and "boring" in case.target),
    "nonsense": ({"show": "x", "sort": "'; DROP TABLE rows", "from": "-1", "limit": "0"}, lambda case: True),
    "injection": ({"q": "%' OR 1=1 --"}, lambda case: False),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_finds_what_a_plain_loop_finds(tmp_path: Path, name: str) -> None:
    said, fits = QUERIES[name]
    report = sample_report()
    with indexed(report, tmp_path) as index:
        page = index.page(Query.of({**said, "limit": said.get("limit", "500")}))
        expected = [case for case in report.cases if fits(case)]
        assert page.total == len(expected)
        assert page.cases == expected[: page.query.limit]


@pytest.mark.parametrize(
    ("sort", "value"), [("likeliest", "log_prob"), ("input", "input_mean"), ("severity", "severity")]
)
def test_orders_fall_and_unknown_comes_last(tmp_path: Path, sort: str, value: str) -> None:
    with indexed(sample_report(), tmp_path) as index:
        cases = index.page(Query.of({"sort": sort, "limit": "500"})).cases
        values = [-math.inf if (one := getattr(case, value)) is None else one for case in cases]
        assert values == sorted(values, reverse=True)
        assert values[-1] == -math.inf or sort == "severity"


def test_pages_follow_each_other_and_addresses_lead_back(tmp_path: Path) -> None:
    report = sample_report()
    with indexed(report, tmp_path) as index:
        seen: list[CaseRow] = []
        query = Query(limit=7, sort="likeliest")
        while (page := index.page(query)).cases:
            assert (page.first, page.last) == (len(seen) + 1, len(seen) + len(page.cases))
            seen += page.cases
            query = replace(query, offset=query.offset + 7)
        assert sorted(seen, key=lambda case: case.id) == sorted(report.cases, key=lambda case: case.id)
    from urllib.parse import parse_qsl

    whole = Query("a b&c=é\ud83d", "hits", 3, "o-greedy", "input", "f-x", 50, 25)
    said = dict(parse_qsl(whole.address()))
    assert Query.of(said) == replace(whole, text="a b&c=é?")
    assert Query().address() == ""


def test_a_stale_a_foreign_and_a_damaged_index_are_refused(tmp_path: Path) -> None:
    indexed(sample_report(), tmp_path).close()
    with pytest.raises(ValueError, match="stale"):
        Index(tmp_path / INDEX, "another stamp")
    with sqlite3.connect(tmp_path / INDEX) as database:
        database.execute("CREATE VIEW extra AS SELECT 1")
    with pytest.raises(ValueError, match="no index of ours"):
        Index(tmp_path / INDEX, "stamp")
    (tmp_path / INDEX).write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(ValueError, match=r"."):
        Index(tmp_path / INDEX, "stamp")
    with pytest.raises(ValueError, match=r"."):
        Index(tmp_path / "nowhere", "stamp")


def test_a_run_that_is_only_looked_at_is_not_written_to(tmp_path: Path) -> None:
    run, spare = tmp_path / "run", tmp_path / "spare"
    spare.mkdir()
    make_run(run, 30)
    before = {path.name for path in run.iterdir()}
    with open_index(run, spare) as index:
        assert index.page(Query()).total == 30
    assert {path.name for path in run.iterdir()} == before
    assert len(list(spare.iterdir())) == 1
    with Run.open(run) as opened:
        show_run(opened, Gates())
    shutil.rmtree(spare)
    with open_index(run, spare) as index:  # the run's own now
        assert index.cases == 30
    with Run.open(run, write=True) as opened:
        opened.set_state("stopped", "for a while")
    spare.mkdir()
    with open_index(run, spare) as index:
        assert index.report.run["stopped"] == "for a while"


@pytest.mark.parametrize("moment", ["findings", "render_run"])
def test_a_report_beside_a_run_that_ends_is_not_left_as_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The run ends while `report` has read the findings, or as it makes the page."""
    folder, spare = tmp_path / "run", tmp_path / "spare"
    spare.mkdir()
    ended: list[bytes] = []
    owner, name = (Run, "findings") if moment == "findings" else (outcome, "render_run")
    usual: Callable[..., Any] = getattr(owner, name)

    def end_meanwhile(*given: Any, **named: Any) -> Any:
        early = usual(*given, **named)
        if not ended:
            ended.append(b"")
            for block in (1, 2, 3):
                commit(run, block)
            run.set_state("finished")
            finish_run(run)
            ended.append((folder / "report.html").read_bytes())
        return early

    with open_run(folder) as run:
        commit(run, 0)
        monkeypatch.setattr(owner, name, end_meanwhile)
        with Run.open(folder) as beside:
            show_run(beside, Gates())
    assert (folder / "report.html").read_bytes() == ended[1]
    shutil.rmtree(spare)  # so that it has to be the run's own
    with open_index(folder, spare) as index:
        assert index.cases == index.page(Query()).total == 8


def test_a_run_that_ends_makes_its_index_anew(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        for block in range(4):
            commit(run, block)
        run.set_state("finished")
        write_index(run.folder / INDEX, sample_report(), stamp_of(run.folder))  # wrong, with the right stamp
        finish_run(run)
    with open_index(tmp_path / "run", tmp_path) as index:
        assert index.cases == 8


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "run"
    make_run(folder, 5000)
    with Run.open(folder) as run:
        write_index(folder / INDEX, make_report(run, summarise(run)), "stamp")
    return folder


def test_many_findings_are_on_a_page_at_once(many: Path) -> None:
    """Of 100,000 by hand with `make_run`; here only that a page is read and not the run."""
    begun = time.perf_counter()
    with Index(many / INDEX, "stamp") as index:
        shown = index.page(Query.of({"sort": "likeliest", "q": "boring", "from": "100"}))
        page = render_run(index.report, App([("Runs", "/")], "/run/x", shown, index.cases, "/run/x/findings"))
    assert time.perf_counter() - begun < 5
    assert page.count('<details class="case') == 50
    boring = sum("boring" in sentence(i) or "boring" in trigger(i) for i in range(5000))
    assert f"101 to 150 of {boring:,}" in page
    assert "from=150" in page
    assert "as=csv" in page


def test_a_file_of_many_findings_stays_small_and_says_what_it_lacks(many: Path) -> None:
    with Run.open(many) as run:
        report = make_report(run, summarise(run))
    text = render_run(replace(report, cases=report.cases * 10))
    shown, brief = text.count('<details class="case'), text.count('<tr id="f-')
    assert len(text.encode()) < 10_000_000
    assert shown == 400
    assert brief > 1000
    assert f"{50_000 - shown - brief:,} more sentences left off this page" in text


def test_huge_texts_do_not_make_a_huge_file() -> None:
    targets, findings = hostile_cases()
    long = [replace(target, id=f"long{i}", text="x" * 25_000) for i, target in enumerate(targets)]
    said = [
        replace(one, case=f"long{i}", target="x" * 25_000, reply="x" * 25_000)
        for i, one in enumerate(findings)
    ]
    text = render_run(report_of([*targets, *long], [*findings, *said]))
    assert len(text.encode()) < 10_000_000
