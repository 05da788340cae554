"""The report of played conversations: numbers by hand, the front, the ranking, and safe faces."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from backtalk.report.build import build_report
from backtalk.report.charts import pareto_chart
from backtalk.report.console import print_report
from backtalk.report.conversations import players_of, put_beside, spread, turn_rows
from backtalk.report.record import Conversations, Report, Spread
from backtalk.report.run_page import render_run
from backtalk.store.exchanges import Exchange, finding_of, opening_of
from backtalk.types import Finding, Opening, Thresholds
from tests.report.samples import drawn

HOSTILE = "<script>alert(1)</script>\x1b[31m fool"


def exchange(
    toxicity: float, log_ppl: float = 2.0, said: str = " so", reply: str = " yes", second: float = math.nan
) -> Exchange:
    return Exchange(said, reply, toxicity, toxicity / 2, 0.0, log_ppl, 4, 0.0, second, second)


def report_of(findings: list[Finding], beside: dict[str, list[Finding]] | None = None) -> Report:
    hits = {"hits": 1, "n": len(findings), "rate": 1 / len(findings), "ci95": [0.0, 1.0]}
    summary: dict[str, Any] = {
        "hit": "toxic-0.5", "hits": {"toxic-0.5": hits}, "model": "hf/tiny", "search": "ast", "run": "r",
        "training": {"history": [{"step": 0.0, "reward": 0.1, "toxicity": 0.2, "toxic_share": 0.3,
                                  "log_ppl": 2.0, "loops": 0.07, "gamma": 0.25}], "best": 0},
        "scorer": "toxicity", "player": "ipo",
    }  # fmt: skip
    cases = [Opening(finding.case, opening_of(finding)) for finding in findings]
    report = build_report(summary, cases, findings, Thresholds(math.nan, -3.0), ["toxic-0.5"])
    for name, own in (beside or {}).items():
        report = put_beside(report, name, own)
    return report


def conversations_of(report: Report) -> Conversations:
    assert report.conversations is not None
    return report.conversations


def test_mean_spread_and_share_by_hand() -> None:
    found = spread([0.2, 0.6, 1.0], 0.5)
    assert found.mean == pytest.approx(0.6)
    assert found.std == pytest.approx(0.4)  # of a sample
    assert found.above == pytest.approx(2 / 3)
    assert spread([0.5], 0.5).above == 0.0  # above means above
    assert spread([math.nan]) == Spread(None, None)


def test_rows_of_each_turn_and_of_all() -> None:
    rows = turn_rows([[exchange(0.2, 1.0), exchange(0.8, 3.0)], [exchange(0.4, 2.0)]])
    assert [(row.turn, row.n) for row in rows] == [(1, 2), (2, 1), (0, 3)]
    assert rows[0].defender.mean == pytest.approx(0.3)
    assert rows[1].log_ppl.mean == 3.0
    assert rows[2].log_ppl.mean == 2.0
    assert rows[2].rewarded is None
    assert turn_rows([]) == []


def test_what_was_said_in_an_earlier_turn_counts_as_a_circle() -> None:
    first, same = (
        exchange(0.2, 1.0)._replace(adversary=text) for text in ("where were you", "Where were  you")
    )
    other = first._replace(adversary="who is that")
    rows = turn_rows([[first, same], [first, other], [same]])
    assert [row.loops for row in rows] == [0.0, 0.5, 0.2]


def test_the_front_holds_those_that_no_other_beats_in_both() -> None:
    rows = {
        name: turn_rows([[exchange(toxicity, log_ppl)]])
        for name, (toxicity, log_ppl) in {
            "ours": (0.5, 2.0), "untuned": (0.1, 1.9), "sft": (0.4, 3.0), "worst": (0.9, 5.0),
            "twin": (0.5, 2.0),
        }.items()
    }  # fmt: skip
    found = players_of(rows)
    assert [player.name for player in found if player.on_front] == ["ours", "untuned", "worst", "twin"]
    chart = ElementTree.fromstring(drawn("draw", pareto_chart(found)))
    assert len(chart.findall("circle")) == 5
    assert len(chart.find("svg/polyline").attrib["points"].split()) == 4  # type: ignore[union-attr]
    assert drawn("draw", pareto_chart([])) == ""


def test_likely_and_bad_comes_first() -> None:
    findings = [
        finding_of("unlikely", ["a"], [exchange(0.9, 8.0)], 1),
        finding_of("harmless", ["b"], [exchange(0.1, 0.5)], 1),
        finding_of("likely", ["c"], [exchange(0.6, 1.0)], 1),
    ]
    report = report_of(findings)
    assert [case.id for case in report.cases] == ["likely", "unlikely", "harmless"]
    assert [case.hit for case in report.cases] == [True, True, False]
    assert conversations_of(report).rates_by_turn[0].hits == 2


def test_toxic_turns_are_masked_until_asked() -> None:
    finding = finding_of("c", ["hello"], [exchange(0.9, reply=" you utter fool")], 1)

    def shown(unmask: bool) -> str:
        out = io.StringIO()
        print_report(report_of([finding]), Console(file=out, width=120), unmask=unmask)
        return out.getvalue()

    assert "fool" not in shown(False)
    assert "y** u**** f***" in shown(False)
    assert "you utter fool" in shown(True)


def test_nothing_hostile_reaches_page_or_terminal() -> None:
    finding = finding_of("c", [HOSTILE], [exchange(0.1, said=HOSTILE, reply=HOSTILE, second=0.2)], 1)
    report = report_of([finding], {"untuned": [finding], HOSTILE: [finding]})
    page = render_run(report)
    assert re.findall("<script[^>]*>", page) == ['<script type="application/json" id="rows">', "<script>"]
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)" in page
    out = io.StringIO()
    print_report(report, Console(file=out, width=120), unmask=True)
    assert "\x1b" not in out.getvalue()


def test_the_page_shows_how_the_adversary_learnt() -> None:
    report = report_of([finding_of("c", ["hello"], [exchange(0.1)], 1)])
    (row,) = re.findall(r"<tr[^>]*>(.*?)</tr>", render_run(report).partition("How the adversary")[2])[1:2]
    assert re.findall(r'class="number">([^<]*)<', row) == ["0.100", "0.200", "30%", "2.00", "7%", "0.25"]
    training = report.run["training"]["history"]
    del training[0]["gamma"], training[0]["loops"]  # of a run from before
    (row,) = re.findall(r"<tr[^>]*>(.*?)</tr>", render_run(report).partition("How the adversary")[2])[1:2]
    assert re.findall(r'class="number">([^<]*)<', row)[-2:] == ["–", "–"]


def test_the_page_allows_its_own_style_and_script_alone() -> None:
    page = render_run(report_of([finding_of("c", ["hello"], [exchange(0.1)], 1)]))
    for kind in ("style", "script"):
        (part,) = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{kind}-src &#39;sha256-{digest}&#39;;" in page
    assert "default-src &#39;none&#39;;" in page
    assert not re.search(r"unsafe-|https?:|@import|url\(| style=| on\w+=", page)


def test_the_page_shows_what_the_record_holds() -> None:
    finding = finding_of("c", ["hello"], [exchange(0.9, reply=" you utter fool"), exchange(0.1)], 1)
    page = render_run(
        report_of([finding], {"untuned": [finding_of("c", ["hello"], [exchange(0.1, 1.0)], 1)]})
    )
    for part in ("Likelihood against toxicity", "0 (kept)", "untuned", "turn 2", "y** u**** f***"):
        assert part in page
    assert 'class="masked"' in page
    assert render_run(report_of([finding], None), most=0).count('<details class="case') == 0
