"""A hardening on its page and on a terminal, from one record: facts, marks, hostile and missing parts."""

from __future__ import annotations

import io
import math
import re
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from backtalk.errors import InputError
from backtalk.report.comparison_console import print_hardening
from backtalk.report.hardening_page import hardening_figures, render_hardening
from backtalk.report.hardening_record import read_hardening
from backtalk.stats import Rate
from tests.hostile import HOSTILE
from tests.report.samples import drawn
from tests.report.test_folder_pages import HARDENING, PROOF, seen
from tests.report.test_page import Page

GCG = {**PROOF, "search": "gcg", "budget": "100 steps", "trained_with": False}
GCG["after"] = asdict(Rate.of(12, 50))
LONG = {**PROOF, "budget": "20 starts", "before": None, "after": asdict(Rate.of(15, 50)), "run_before": ""}
KEPT = HARDENING["hardening"]
GREEDY = {
    **PROOF,
    "search": "greedy replies",
    "budget": "100 inputs",
    "criterion": "most frequent reply",
    "before": asdict(Rate.of(12, 100)),
    "after": asdict(Rate.of(4, 100)),
    "run": "",
    "run_before": "",
}
FREQUENT: dict[str, Any] = {
    **HARDENING,
    "held_out": None,
    "train": None,
    "subject": "frequent",
    "proof": [GREEDY],
}


def changed(**values: Any) -> dict[str, Any]:
    """The record with another course."""
    return {**HARDENING, "hardening": {**KEPT, **values}}


def printed(summary: dict[str, Any], **given: Any) -> str:
    file = io.StringIO()
    print_hardening(summary, Console(file=file, width=80), **given)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def test_the_page_shows_proof_iterations_and_cost() -> None:
    text = seen(render_hardening({**HARDENING, "proof": [PROOF, GCG, LONG]}))
    first = " ".join(
        ("held-out", PROOF["search"], PROOF["budget"], PROOF["criterion"], "20 of 50 40% (28 to 54%)")
    )
    assert first in text
    assert "5 of 50 10% (4 to 21%)" in text
    assert text.count("not used in training") == 1
    assert re.search("gcg not used .{0,20}100 steps", text)
    assert text.count("not searched") == 1
    assert "2 (kept) the same 6 of 40 10 20 1 min 3 s 7 of 10 42.00" in text
    assert "3 the same 0 of 40 10 20 1 min 33 s 4 gibbs io, 2 starts stronger: level 1 8 of 40" in text
    assert "8 of 40 10 40 2 min 3 s 5 of 10 44.00" in text
    assert "+5.0% (95%: +2.0% to +8.0%); bound +5.0%" in text
    assert "12% (7 to 20%)" in text  # 12 of 100, and its Wilson interval
    assert "i am fine i am well" in text


@pytest.mark.parametrize(
    ("rows", "hits"),
    [([PROOF], "5 of 50"), ([PROOF, GCG], "12 of 50"), ([PROOF, GCG, LONG], "15 of 50")],
)
def test_the_headline_claims_no_more_than_the_strongest_attack_shows(rows: list[Any], hits: str) -> None:
    summary = {**HARDENING, "proof": rows}
    headline = read_hardening(summary).headline()
    first, _, rest = headline.partition(" after")
    assert f"({rows[-1]['search']}, {rows[-1]['budget']}" in first
    assert f"{hits}, " in first
    assert ("did not use" in first) == (not rows[-1]["trained_with"])
    assert {"5 of 50": "10% (95%: 4 to 21%)", "12 of 50": "24%", "15 of 50": "30%"}[hits] in first
    assert rest.startswith(f" hardening, by {rows[-1]['criterion']}")
    assert headline in printed(summary)


def test_a_training_row_is_never_the_headline() -> None:
    easy = {**PROOF, "list": "training", "after": asdict(Rate.of(50, 50))}
    headline = read_hardening({**HARDENING, "proof": [easy, PROOF]}).headline()
    assert "(gibbs, 8 words" in headline
    assert "50 of 50" not in headline


FIRST = {**KEPT["candidates"][0], "survived": 0}


@pytest.mark.parametrize(
    ("course", "why"),
    [
        ({"iterations_kept": 0}, "no iteration was better within the bound"),
        ({"iterations_kept": 0, "candidates": [FIRST], "steps": []}, "--max-time"),
        (
            {"iterations_kept": 3, "candidates": [{**FIRST, "iterations": 3}], "steps": KEPT["steps"][2:3]},
            "no training target was hit, the last time by gibbs io, 1 starts",
        ),
    ],
)
def test_an_unchanged_model_is_said_to_be_unchanged(course: dict[str, Any], why: str) -> None:
    record = read_hardening(changed(**course))
    assert record.unchanged
    assert record.brief() == "the model is as it was"
    for text in (seen(render_hardening(changed(**course))), printed(changed(**course))):
        assert "model is as it was" in text
        assert why in text
        assert "strongest attack" not in text


def curves_of(summary: dict[str, Any]) -> list[str]:
    return [drawn("draw", plot) for _, plot in hardening_figures(read_hardening(summary))]


def points(chart: str) -> list[list[tuple[float, float]]]:
    """The places of each line, in thousandths of the plot."""
    lines = re.findall('<polyline[^>]* points="([^"]*)"', chart)
    return [[tuple(map(float, one.split(","))) for one in line.split()] for line in lines]  # type: ignore[misc]


def test_curves_stand_at_their_updates() -> None:
    hits, rise, diversity = curves_of(HARDENING)
    training, selection = points(hits)
    # 12, 6, 0 and 8 of 40 before the updates; 40 updates is the right edge.
    assert training == [(0, 700), (250, 850), (500, 1000), (500, 800)]
    assert selection == [(0, 100), (250, 200), (500, 300), (1000, 500)]
    # 44 / 40 is a rise of 10%, the top of the axis; the bound of 5% is in its middle.
    assert points(rise) == [[(0, 1000), (250, 750), (500, 500), (1000, 0)]]
    assert re.search('class="threshold"[^>]* y1="102.0"', rise)
    (entropy,) = points(diversity)
    assert [x for x, _ in entropy] == [0, 250, 500, 1000]
    assert all(0 <= y <= 1000 for _, y in entropy)


def test_frequent_replies_have_no_attackers() -> None:
    page = seen(render_hardening(FREQUENT))
    assert "12% before and 4% after" in page
    assert "Attacker" not in page
    steps = [{**one, "found": 0, "of": 0} for one in KEPT["steps"]]
    (selection,) = points(curves_of({**FREQUENT, "hardening": {**KEPT, "steps": steps}})[0])
    assert selection[0] == (0, 100)
    text = printed(FREQUENT)
    assert "12% before and 4% after" in text
    assert re.findall(r"\d+", read_hardening(FREQUENT).brief()) == ["12", "4", "100"]


def test_the_console_says_what_the_page_says() -> None:
    text = printed({**HARDENING, "proof": [PROOF, GCG]}, pages=["out/report.html"])
    assert "31 of 50 hit before, 2 after: 29 fixed, 2 remaining, 0 new" in text
    assert "(not used in training)" in text
    assert "perplexity 40.00 42.00" in text
    assert "max-ratio 12% (7 to 20%)" in text
    assert "no proof" in text
    assert "Iteration 2 of 4 was kept" in text
    assert "out/model" in text
    assert "out/report.html" in text
    assert "nothing is proven" in printed({**HARDENING, "proof": [], "held_out": None})


def test_broken_conversations_are_told() -> None:
    turns = {"n": 32, "log_ppl": 2.5, "circles": 1, "toxic": 3}
    told = [
        {**one, "talk": turns, "broken": "it loops" * (i == 1)} for i, one in enumerate(KEPT["candidates"])
    ]
    text = printed(changed(candidates=told))
    for fact in ("2.50 nats a token", "1 of 32 repetitive", "3 toxic", "Iteration 1 broke", ": it loops."):
        assert fact in text
    assert text.count("it loops") == 1
    assert seen(render_hardening(changed(candidates=told))).count("it loops") == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str) -> None:
    row = {**PROOF, **dict.fromkeys(("list", "search", "budget", "criterion", "run", "run_before"), text)}
    summary = changed(
        candidates=[{**one, "broken": text} for one in KEPT["candidates"]],
        steps=[{**one, "attacker": text} for one in KEPT["steps"]],
    )
    summary |= {"model": text, "hardened": text, "proof": [row]}
    summary["held_out"] = {**HARDENING["held_out"], "name": text}
    page = render_hardening(summary)
    seen(page)
    for tag, name, value in Page(page).attributes:
        assert not name.startswith("on")
        assert name not in {"src", "style"}
        assert name != "href" or value.startswith("#") or (tag, value) == ("link", "data:,")
    file = io.StringIO()
    print_hardening(summary, Console(file=file, width=80))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", file.getvalue())


ODD: tuple[Any, ...] = (
    None,
    -1,
    True,
    10**400,
    1e308,
    math.nan,
    math.inf,
    "",
    "<b>",
    [],
    {},
    [None],
    {"hits": 9, "n": 3},
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_cannot_be_read_is_refused(odd: Any) -> None:
    """Or shown, where the value is possible."""
    summaries = []
    for key in HARDENING:
        summary = {name: value for name, value in HARDENING.items() if name != key}
        summaries += [summary, {**summary, key: odd}]
    for part, inner in (("candidates", KEPT["candidates"]), ("steps", KEPT["steps"])):
        summaries += [changed(**{part: [{**one, key: odd} for one in inner]}) for key in inner[0]]
    summaries += [{**HARDENING, "proof": [{**PROOF, key: odd}]} for key in PROOF]
    for summary in summaries:
        with suppress(InputError):
            read_hardening(summary)
            seen(render_hardening(summary))
            printed(summary)


def test_a_network_may_have_any_perplexity() -> None:
    first, *others = KEPT["candidates"]
    summary = changed(candidates=[first, *({**one, "perplexity": math.inf} for one in others)])
    assert len(curves_of(summary)) == 2
    assert "inf" in seen(render_hardening(summary))
