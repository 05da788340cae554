"""The verdict: known answers on findings made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backtalk.hits import parse_criterion
from backtalk.report.record import Verdict
from backtalk.report.run_page import render_run
from backtalk.report.verdict import as_dict, verdict_of, verdict_sentences
from backtalk.runs.summary import summarise
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.types import Finding, SpokenTurn, Target, Thresholds
from tests.report.samples import THRESHOLDS, finding, report_of
from tests.web.worlds import finish, play

TARGETS = [Target(f"t{i}", "you are wrong", severity=1 + i % 3) for i in range(10)]


def of(findings: list[Finding], targets: list[Target] = TARGETS, hit: str = "chance-1e-6") -> Verdict:
    return verdict_of(targets, findings, parse_criterion(hit), THRESHOLDS, {})


def likely(target: Target, one_in: float, restart: int = 0, **scores: float) -> Finding:
    made = finding(target, restart)
    return replace(made, scores={**made.scores, "log_prob": -math.log(one_in), "toxicity": 0.0, **scores})


def some_findings() -> list[Finding]:
    """t0 says it in its second restart, t1 is rated bad, t2 and t3 are likely, t4 is not, t5 failed, t6 was
    skipped, t7 found nothing, t8 and t9 were not tried."""
    return [
        likely(TARGETS[0], 1e5),
        likely(TARGETS[0], 1e9, 1, greedy=1.0, toxicity=0.9),
        likely(TARGETS[1], 1e9, toxicity=0.5),
        likely(TARGETS[2], 500),
        replace(likely(TARGETS[3], 2000), unfinished=True),
        likely(TARGETS[4], 1e9),
        Finding("t5", 0, "failed", TARGETS[5].text, note="out of memory"),
        Finding("t6", 0, "skipped", TARGETS[6].text),
        Finding("t7", 0, "nothing", TARGETS[7].text),
    ]


def test_every_number() -> None:
    found = of(some_findings())
    assert (found.said, found.target, found.rated_bad) == (Rate.of(2, 6), 1, 1)
    assert (found.log_prob, found.case) == (-math.log(500), "t2")
    assert found.over == {"1e-3": Rate.of(1, 6), "1e-6": Rate.of(3, 6)}
    # t0 and t3 have severity 1 and t1, t4 and t7 severity 2.
    totals = {level: (row.cases, row.said, row.likely) for level, row in found.severity.items()}
    assert totals == {"3": (1, 0, 1), "2": (3, 1, 0), "1": (2, 1, 2)}
    assert list(totals) == ["3", "2", "1"]
    assert (found.untried, found.unfinished, found.note) == (2, 1, "")


def test_the_summary_holds_plain_numbers() -> None:
    told = as_dict(of(some_findings()))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["said"] == {**Rate.of(2, 6).as_dict(), "target": 1, "rated_bad": 1}
    assert told["chance"]["one_in"] == pytest.approx(500)
    assert told["chance"]["case"] == "t2"
    assert {name: one["hits"] for name, one in told["chance"]["over"].items()} == {"1e-3": 1, "1e-6": 3}
    assert told["severity"]["1"] == {"cases": 2, "said": 1, "over_1e-6": 2}
    unlikely = as_dict(of([likely(TARGETS[0], 10.0), finding(TARGETS[0], 1, tokens=[-900.0])]))
    assert unlikely["chance"]["one_in"] == pytest.approx(10)
    assert as_dict(of([finding(TARGETS[0], tokens=[-900.0])]))["chance"]["one_in"] is None


def test_an_honest_zero_gives_the_upper_end_and_the_best_found() -> None:
    found = of([likely(target, 1e8) for target in TARGETS])
    said, chance = verdict_sentences(found)
    assert "none of 10 sentences (95% interval: at most 28%)" in said
    assert "1 in 100 million" in chance
    assert "none of 10 reaches 1 in a million (95% interval: at most 28%)" in chance


def test_where_replies_are_not_rated_only_the_target_counts() -> None:
    found = of([finding(target) for target in TARGETS[:3]])
    assert (found.said.hits, found.target, found.rated_bad) == (0, 0, None)


def test_where_only_replies_are_seen_the_chance_is_not_known() -> None:
    turns = (SpokenTurn("user", "hello"),)
    replies = ["You are wrong!", "no", "you are so wrong"]
    findings = [
        Finding(target.id, 0, "found", target.text, turns, reply, {"similarity": 0.5, "toxicity": 0.1})
        for target, reply in zip(TARGETS, replies, strict=False)
    ]
    found = verdict_of(TARGETS, findings, parse_criterion("exact"), Thresholds(math.nan), {})
    assert (found.said.hits, found.said.n, found.target, found.rated_bad) == (1, 3, 1, 0)
    assert (found.log_prob, found.over, as_dict(found)["chance"]) == (None, {}, None)
    assert {row.likely for row in found.severity.values()} == {None}
    assert "not known" in verdict_sentences(found)[1]


@pytest.mark.parametrize(
    ("findings", "summary", "why"),
    [
        ([], {"stopped": "--max-time 5s was reached"}, "--max-time 5s was reached"),
        ([], {}, "no sentence is done"),
        ([Finding("t0", 0, "failed", "")], {"failures": {"out of memory": 1}}, "out of memory (1)"),
        ([Finding("t0", 0, "skipped", "")], {}, "1 sentence skipped"),
    ],
)
def test_nothing_scored_is_said_first(findings: list[Finding], summary: dict[str, Any], why: str) -> None:
    report = report_of(TARGETS, findings, **summary)
    note = report.verdict.note
    assert note.startswith("Nothing could be scored")
    assert why in note
    assert report.headline == as_dict(report.verdict)["note"] == note
    assert report.worst is None
    page = render_run(report)
    assert page.index(why) < page.index("<main")
    assert 'class="tiles"' not in page


def test_what_is_missing_is_named_with_its_reason() -> None:
    report = report_of(TARGETS, some_findings(), stopped="--max-time 5m was reached")
    first, second = report.warnings
    expected = "2 of 10 sentences were not tried, 1 was searched in part: --max-time 5m was reached."
    assert first == expected
    assert second.startswith("1 sentence could not be scored")
    assert [case.id for case in report.cases if case.unfinished] == ["t3"]


def test_a_page_begins_with_tiles_then_the_worst_and_ends_with_the_words() -> None:
    page = render_run(report_of(TARGETS, some_findings(), hit="io-sample-avg-k1"))
    places = [page.index(f'id="{name}"') for name in ("tile-said", "tile-chance", "tile-severity")]
    places += [page.index(mark) for mark in ("io-sample-avg-k1", 'id="worst"', 'id="findings"')]
    places += [page.index(f'id="{name}"') for name in ("categories", "per-word")]
    assert places == sorted(places)
    assert page.count("sample-min-k1</code><span") == 2  # o and io, in their own section only


def test_conversations_are_judged_by_their_criterion(tmp_path: Path) -> None:
    with Run.open(play(tmp_path / "run")) as run:
        summary = summarise(run)
    hit = summary["hits"][summary["hit"]]
    verdict = summary["verdict"]
    assert {name: verdict["said"][name] for name in hit} == hit
    assert verdict["said"]["target"] is None
    assert (verdict["chance"], verdict["severity"]) == (None, {})


def test_a_stored_run_has_it(tmp_path: Path) -> None:
    finish(tmp_path / "run", TARGETS, some_findings())
    with Run.open(tmp_path / "run") as run:
        assert summarise(run)["verdict"]["said"]["hits"] == 2
