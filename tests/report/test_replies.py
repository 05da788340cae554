"""What a black-box run adds to the record, from numbers counted by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backtalk.hits import TEXT_STANDARD, rates_by_category
from backtalk.report.build import build_report
from backtalk.report.charts import share_chart
from backtalk.report.record import Report
from backtalk.report.replies import STEPS, build_replies
from backtalk.report.run_page import render_run
from backtalk.types import Finding, SpokenTurn, Target, Thresholds
from tests.report.samples import HOSTILE, drawn

FACTS: dict[str, Any] = {
    "plan": {"total": 500},
    "vectors": "vectors.txt",
    "judge": "a judge",
    "utterances": {"source": "said.txt", "count": 2000, "scored": 900, "input_mean": -4.5},
}
THRESHOLDS = Thresholds(math.nan, -4.0)
TARGETS = [
    Target("a", "go away"),
    Target("b", "you bore me"),
    Target("c", "you are so very dull"),
    Target("d", "you will not get any help from me today"),
    Target("e", "zzz"),
]


def found(target: Target, near: list[float], reply: str = "fine", **scores: float) -> Finding:
    best = max(value for value in near if not math.isnan(value))
    return Finding(
        target.id,
        0,
        "found",
        target.text,
        (SpokenTurn("user", "hello"),),
        reply,
        {"similarity": best, "loss": 1 - best, **scores},
        {"similarity_by_query": near},
        queries=len(near),
    )


FINDINGS = [
    found(TARGETS[0], [0.2, math.nan, 0.9], judge=0.8, input_mean=-3.0),
    Finding("b", 0, "failed", TARGETS[1].text, note="no usable reply"),
    found(TARGETS[2], [0.7, 0.1], judge=0.4, input_mean=-5.0),
    found(TARGETS[3], [0.5], reply=TARGETS[3].text),
    Finding("e", 0, "skipped", "zzz"),
]


def report_of(targets: list[Target], findings: list[Finding], **facts: Any) -> Report:
    named = [criterion.name for criterion in TEXT_STANDARD]
    by_category = rates_by_category(targets, findings, TEXT_STANDARD, THRESHOLDS)
    tables = by_category.pop("")
    summary = {
        "model": "sealed:chitchat",
        "search": "reverse",
        "hit": "similar-0.7",
        "hits": {name: rate.as_dict() for name, rate in tables.items()},
        "by_category": {c: {n: r.as_dict() for n, r in row.items()} for c, row in by_category.items()},
        "queries": 6,
        "queries_by_phase": {"pairs": 2, "rerank": 4},
    }
    return build_report(summary, targets, findings, THRESHOLDS, named, {}, {**FACTS, **facts})


def test_success_by_length_and_threshold() -> None:
    replies = build_replies({}, TARGETS, FINDINGS, FACTS)
    short, middle, long = replies.curves
    assert [(row.group, row.n) for row in replies.curves] == [
        ("1 to 3 words", 1),
        ("4 to 6 words", 1),
        ("7 to 10 words", 1),
    ]
    assert dict(zip(STEPS, short.shares, strict=True)) == {
        step: (1.0 if step <= 0.9 else 0.0) for step in STEPS
    }
    assert (middle.at["0.7"].rate, middle.at["0.9"].rate) == (1, 0)
    assert (long.at["0.5"].rate, long.at["0.7"].rate) == (1, 0)
    assert short.mean_similarity == pytest.approx(0.9)  # the one without a reply says nothing
    assert short.mean_judge == pytest.approx(0.8)
    assert long.mean_judge is None


def test_inputs_found_stand_beside_utterances() -> None:
    crafted, real = build_replies({}, TARGETS, FINDINGS, FACTS).inputs
    assert (crafted.n, crafted.of, crafted.mean) == (2, 3, -4.0)
    assert (real.n, real.mean) == (900, -4.5)


def test_the_record_says_what_the_model_said_word_for_word() -> None:
    report = report_of(TARGETS, FINDINGS)
    assert (report.verdict.said.hits, report.verdict.said.n, report.verdict.target) == (1, 3, 1)
    assert report.main is not None
    assert (report.main.hits, report.main.n) == (2, 3)
    assert [case.id for case in report.cases] == [
        "d",
        "a",
        "c",
        "b",
    ]  # said, hits, near misses
    assert [case.said for case in report.cases] == [True, False, False, False]
    assert (report.t_out, report.t_in) == (None, -4.0)
    assert report.sentences is not None
    assert report.sentences.replies is not None
    assert report.sentences.replies.queries == {"gathering pairs": 2, "asking what was proposed": 4}


def test_the_page_shows_similarities_and_no_chances() -> None:
    page = render_run(report_of(TARGETS, FINDINGS))
    for phrase in ("By similarity and length", "least similarity", "6 of at most 500 requests", "a judge"):
        assert phrase in page
    for phrase in ("sampled replies", "T_out", "Restarts", "chance unknown"):
        assert phrase not in page


def test_hostile_text_stays_inert() -> None:
    targets = [Target(f"t{i}", text) for i, text in enumerate(HOSTILE)]
    findings = [found(target, [0.8, 0.1], reply=target.text) for target in targets]
    used = {"source": HOSTILE[0], "count": 1, "scored": 1, "input_mean": -1.0}
    page = render_run(report_of(targets, findings, utterances=used, vectors=HOSTILE[1], judge=HOSTILE[2]))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("<style>") == 1


def test_a_chart_names_its_lines_and_keeps_to_its_frame() -> None:
    plot = share_chart([("one <b>", [1.0, 0.5, 0.0]), ("two", [0, 0, 0])], "abc", "across")
    chart = drawn("draw", plot)
    assert "one &lt;b&gt;" in chart
    assert 'points="0.0,0.0 500.0,500.0 1000.0,1000.0"' in chart
    assert chart.count("<polyline") == 2
    assert share_chart([], "abc", "across") is share_chart([("one", [1])], "a", "across") is None
