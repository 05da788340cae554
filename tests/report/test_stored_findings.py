"""Findings looked up in a run's database: as a plain loop over the report would; quick for many."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli.showing import show_run
from backtalk.hits import CHANCES, STANDARD, TEXT_STANDARD, TOXIC_STANDARD, hit_cases, parse_criterion
from backtalk.report.page import App
from backtalk.report.record import CaseRow, RateRow, Report
from backtalk.report.run_page import render_run
from backtalk.report.stored_findings import Query, StoredFindings
from backtalk.runs import summary as outcome
from backtalk.runs.gates import Gates
from backtalk.runs.summary import finish_run, read_head, read_results
from backtalk.store import Run
from backtalk.store.folder import REPORT
from backtalk.store.typed import read_record
from backtalk.types import Finding, Target
from tests.hostile import hostile_cases
from tests.report.bulk import make_run, sentence, trigger
from tests.report.samples import THRESHOLDS, finding, report_of, sample_cases, sample_report
from tests.web.worlds import commit, finish, open_run, play


def stored(folder: Path, targets: Sequence[Target], findings: Sequence[Finding]) -> Report:
    """The report of a run that is made in the folder."""
    finish(folder, targets, findings)
    with Run.open(folder) as run:
        return read_results(run).report


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("sample") / "run"
    return folder, stored(folder, *sample_cases())


@pytest.mark.parametrize("kind", ["sentences", "hostile", "conversations"])
def test_every_case_comes_back_as_it_was(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    if kind == "conversations":
        play(folder)
        with Run.open(folder) as run:
            report = read_results(run).report
    else:
        report = stored(folder, *(hostile_cases() if kind == "hostile" else sample_cases()))
    head = read_head(folder)
    assert head.cases == len(report.cases)
    assert head.report == replace(report, cases=[], skipped=report.skipped[:50])
    with closing(StoredFindings(folder, head.report)) as found:
        assert found.page(Query(limit=10_000)).cases == report.cases


@pytest.mark.parametrize("kind", ["sentences", "conversations"])
def test_the_record_is_rebuilt_from_its_json(tmp_path: Path, kind: str) -> None:
    report = sample_report()
    if kind == "conversations":
        with Run.open(play(tmp_path / "run")) as run:
            report = read_results(run).report
    assert read_record(Report, json.loads(json.dumps(asdict(report)))) == report


@pytest.mark.parametrize(
    "change", [{"hit": 1}, {"severity": "3"}, {"words": {}}, {"words": [1]}, {"id": None}]
)
def test_a_record_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    case = json.loads(json.dumps(asdict(sample_report().cases[0])))
    with pytest.raises(ValueError, match=r"expected|not an object"):
        read_record(CaseRow, case | change)
    with pytest.raises(ValueError, match="missing"):
        read_record(CaseRow, {})


QUERIES: dict[str, tuple[dict[str, str], Callable[[CaseRow], bool]]] = {
    "all": ({}, lambda case: True),
    "hits": ({"show": "hits"}, lambda case: case.hit),
    "misses": ({"show": "misses"}, lambda case: not case.hit),
    "said": ({"show": "said"}, lambda case: case.said or case.rated_bad),
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
def test_a_query_finds_what_a_plain_loop_finds(sample: tuple[Path, Report], name: str) -> None:
    form, fits = QUERIES[name]
    folder, report = sample
    with closing(StoredFindings(folder, report)) as found:
        page = found.page(Query.of({**form, "limit": form.get("limit", "500")}))
    expected = [case for case in report.cases if fits(case)]
    assert page.total == len(expected)
    assert page.cases == expected[: page.query.limit]


CRITERIA = [
    *(c.name for c in (*CHANCES, *STANDARD, *TEXT_STANDARD, *TOXIC_STANDARD)),
    "io-greedy",
    "io-sample-min-k1.5",
]


def odd_findings(targets: Sequence[Target]) -> list[Finding]:
    """Scores near the thresholds, missing, not numbers and infinite; replies that are, hold or miss the
    target; one to three restarts."""
    draw = random.Random(0)
    near = {"mean": -3.2, "min": -3.2, "input_mean": -4.1, "similarity": 0.7, "toxicity": 0.5}
    made = []
    for target in targets:
        for restart in range(draw.randint(1, 3)):
            scores = {
                name: level + draw.choice((-0.8, -0.3, -1e-7, 0.0, 0.3)) for name, level in near.items()
            }
            scores |= {"greedy": draw.choice((0.0, 1.0)), "log_prob": -20 * draw.random()}
            scores |= {"loss": draw.choice((0.0, 1.0, math.inf, math.nan))}
            scores |= {draw.choice([*near, "log_prob"]): draw.choice((math.nan, -math.inf))}
            scores.pop(draw.choice([*near, "loss"]))
            reply = draw.choice((target.text, f"well, {target.text.upper()}!", "no", ""))
            status = draw.choice(("found", "found", "found", "nothing", "failed"))
            made.append(finding(target, restart, scores=scores, reply=reply, status=status))
    return made


def test_sql_decides_every_criterion_as_python_does(tmp_path: Path) -> None:
    targets = [Target(f"t{i}", f"you are boring {i}") for i in range(200)]
    findings = odd_findings(targets)
    report = stored(tmp_path / "run", targets, findings)
    rates = [RateRow(0, 0, 0.0, 0.0, 0.0, name) for name in CRITERIA]
    with closing(StoredFindings(tmp_path / "run", replace(report, rates=rates))) as found:
        for name in CRITERIA:
            met = {case.id for case in found.page(Query(meets=name, limit=10_000)).cases}
            assert met == hit_cases(findings, parse_criterion(name), THRESHOLDS), name
            assert 0 < len(met) < len(targets), name
    with closing(StoredFindings(tmp_path / "run", report)) as found:
        assert found.page(Query(limit=10_000)).cases == report.cases


@pytest.mark.parametrize(
    ("sort", "value"), [("likeliest", "log_prob"), ("input", "input_mean"), ("severity", "severity")]
)
def test_orders_fall_and_unknown_comes_last(sample: tuple[Path, Report], sort: str, value: str) -> None:
    with closing(StoredFindings(*sample)) as found:
        cases = found.page(Query.of({"sort": sort, "limit": "500"})).cases
    values = [-math.inf if (one := getattr(case, value)) is None else one for case in cases]
    assert values == sorted(values, reverse=True)
    assert values[-1] == -math.inf or sort == "severity"


def test_pages_follow_each_other_and_addresses_lead_back(sample: tuple[Path, Report]) -> None:
    with closing(StoredFindings(*sample)) as found:
        seen: list[CaseRow] = []
        query = Query(limit=7, sort="likeliest")
        while (page := found.page(query)).cases:
            assert (page.first, page.last) == (len(seen) + 1, len(seen) + len(page.cases))
            seen += page.cases
            query = replace(query, offset=query.offset + 7)
    assert sorted(seen, key=lambda case: case.id) == sorted(sample[1].cases, key=lambda case: case.id)
    from urllib.parse import parse_qsl

    whole = Query("a b&c=é\ud83d", "hits", 3, "o-greedy", "input", "f-x", 50, 25)
    form = dict(parse_qsl(whole.address()))
    assert Query.of(form) == replace(whole, text="a b&c=é?")
    assert Query().address() == ""


def test_a_run_that_is_only_looked_at_is_not_written_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_run(run, 30)
    before = {path.name for path in run.iterdir()}
    assert read_head(run).cases == 30
    assert {path.name for path in run.iterdir()} == before
    with Run.open(run) as opened:
        show_run(opened, Gates())
    text = (run / REPORT).read_text()
    (run / REPORT).write_text(text.replace('"cases": 30', '"cases": 31'))
    assert read_head(run).cases == 31  # the run's own now
    for odd in ("{", "[]", '{"stamp": 1}', text.replace('"stamp": "', '"stamp": "x')):
        (run / REPORT).write_text(odd)
        assert read_head(run).cases == 30
    (run / REPORT).write_text(text)
    with Run.open(run, write=True) as opened:
        opened.set_state("stopped", "for a while")
    assert read_head(run).report.run["stopped"] == "for a while"


@pytest.mark.parametrize("moment", ["findings", "render_run"])
def test_a_report_beside_a_run_that_ends_is_not_left_as_it_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The run ends while `report` has read the findings, or as it makes the page."""
    folder = tmp_path / "run"
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
    head = json.loads((folder / REPORT).read_text())
    assert (head["cases"], head["stamp"]) == (8, read_head(folder).stamp)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "run"
    make_run(folder, 5000)
    with Run.open(folder) as run:
        show_run(run, Gates())
    return folder


def test_many_findings_are_on_a_page_at_once(many: Path) -> None:
    """Of 100,000 by hand with `make_run`; here only that a page is read and not the run."""
    begun = time.perf_counter()
    head = read_head(many)
    with closing(StoredFindings(many, head.report)) as found:
        shown = found.page(Query.of({"sort": "likeliest", "q": "boring", "from": "100"}))
    page = render_run(head.report, App([("Runs", "/")], "/run/x", shown, head.cases))
    assert time.perf_counter() - begun < 5
    assert page.count('<details class="case') == 50
    boring = sum("boring" in sentence(i) or "boring" in trigger(i) for i in range(5000))
    assert f"101 to 150 of {boring:,}" in page
    assert "from=150" in page


def test_a_file_of_many_findings_stays_small_and_says_what_it_lacks(many: Path) -> None:
    with Run.open(many) as run:
        report = read_results(run).report
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
