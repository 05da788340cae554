"""How far a budget goes and where findings lie, against hand-counted cases; and the pictures of both."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from backtalk.hits import parse_criterion
from backtalk.report.charts import budget_chart, scatter_chart
from backtalk.report.record import ScatterPlot
from backtalk.report.sentences import front_of, hits_by_budget, scatter_plot
from backtalk.types import Target, Thresholds
from tests.report.samples import THRESHOLDS, drawn, finding, sample_report

TARGET = Target("a", "you are wrong")
HIT = parse_criterion("o-sample-avg-k1")
LIKELY, UNLIKELY = [-1.0] * 4, [-9.0] * 4


def test_a_case_is_hit_once_the_restarts_up_to_its_first_hit_are_paid_for() -> None:
    cases = [
        [
            finding(TARGET, 0, tokens=UNLIKELY, candidates=60),
            finding(TARGET, 1, tokens=LIKELY, candidates=40),
        ],
        [finding(TARGET, 0, tokens=LIKELY, candidates=20), finding(TARGET, 1, tokens=LIKELY, candidates=50)],
        [finding(TARGET, 0, tokens=UNLIKELY, candidates=70)],
        [finding(TARGET, 0, status="skipped")],
    ]
    points = hits_by_budget(cases, HIT, THRESHOLDS)
    assert [spent for spent, _ in points] == [*range(0, 101, 10)]
    assert [round(3 * share) for _, share in points] == [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2]
    assert hits_by_budget([], HIT, THRESHOLDS) == []
    assert hits_by_budget([[finding(TARGET, candidates=0)]], HIT, THRESHOLDS) == []


def test_badness_is_the_chance_of_the_sentence_where_it_was_searched_for() -> None:
    cases = sample_report().cases
    scatter = scatter_plot(cases, THRESHOLDS)
    assert scatter is not None
    assert (scatter.bad, scatter.t_in) == ("chance", -4.1)
    known = [case for case in cases if case.input_mean is not None]
    assert scatter.dots == [(case.input_mean, case.log_prob, case.hit) for case in known]
    assert scatter_plot(cases[:1], THRESHOLDS) is None
    without = scatter_plot(cases, Thresholds(float("nan")))
    assert without is not None
    assert without.t_in is None
    by_reply = [replace(case, similarity=0.5, toxicity=0.25) for case in cases]
    of_replies = scatter_plot(by_reply, THRESHOLDS)
    assert of_replies is not None
    assert of_replies.bad == "toxicity"


def test_the_front_has_the_points_that_no_other_beats_in_both() -> None:
    draw = np.random.default_rng(3)
    points = [(float(x), float(y)) for x, y in draw.integers(0, 12, (40, 2))]
    beaten = {p for p in points for q in points if q != p and q[0] >= p[0] and q[1] >= p[1]}
    assert front_of(points) == sorted(set(points) - beaten)
    assert front_of([]) == []


def test_too_many_points_are_drawn_evenly() -> None:
    cases = sample_report().cases * 40
    scatter = scatter_plot(cases, THRESHOLDS)
    assert scatter is not None
    assert len(scatter.dots) <= 1000
    assert scatter.of == sum(case.input_mean is not None for case in cases)


def test_the_pictures_hold_their_numbers() -> None:
    scatter = ScatterPlot("toxicity", [(-5.0, 0.25, False), (-3.0, 1.0, True)], [(-3.0, 1.0)], 2, -4.0)
    svg = drawn("draw", scatter_chart(scatter))
    spots = re.findall(r'<circle class="(spot[^"]*)" cx="([\d.]+)%" cy="([\d.]+)"', svg)
    # From -5 to -3 across 86% from 12%, and from 1 to 0 down 240 pixels from 12.
    assert [(kind, float(y)) for kind, _, y in spots] == [("spot", 192.0), ("spot hit", 12.0)]
    assert [float(x) for _, x, _ in spots] == [12.0, 98.0]
    assert "2 findings, 1 of them hits" in svg
    assert scatter_chart(ScatterPlot("toxicity", scatter.dots[:1], [], 1, None)) is None
    chart = drawn("draw", budget_chart([(0, 0.0), (20_000, 0.5)]))
    assert "sentences hit: 0% to 50%" in chart
    assert ">20k<" in chart
