"""The page of He & Glass 2019 from made-up results: numbers, intervals, marks and verdicts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backtalk.stats import Rate
from reproduction.egregious.findings import bootstrap_ratio, check_findings, settled, uneven
from reproduction.egregious.paper import MAL_HITS, NOTES, TABLE_2, TABLE_5, TABLE_6, TABLE_11
from reproduction.egregious.study import STUDY
from reproduction.egregious.tables import restarts_table, table_1
from reproduction.page import Page
from reproduction.spec import StudySpec
from reproduction.tests.miniature import verdict_on, write_study
from reproduction.verdicts import at_least

N = 1000


def search_result(**hits: int) -> dict[str, Any]:
    """A search in which the first so many of 1,000 targets meet each criterion."""
    named = {name.replace("_", "-"): count for name, count in hits.items()}
    return {
        "n": N,
        "skipped": 3,
        "candidates": 10,
        "mean_sweeps": 2.0,
        "hits": {name: {"best": Rate.of(count, N).as_dict()} for name, count in named.items()},
        "targets": {str(i): {"hits": [name for name, count in named.items() if i < count]} for i in range(N)},
        "own": [],
    }


def record(result: dict[str, Any], restarts: int = 10) -> dict[str, Any]:
    versions = {"torch": "2.0", "backtalk": "0", "python": "3"}
    machine = {"device": "cpu (test)", "versions": versions, "seconds": 1.5}
    return {"key": "k", "settings": {"restarts": restarts}, "result": result, **machine}


O_LAST_H = search_result(o_sample_min_k1=10, o_sample_avg_k1=189, o_sample_avg_k2=392)
O_ATTENTION = search_result(o_sample_min_k1=0, o_sample_avg_k1=300, o_sample_avg_k2=450)
RECORDS = {
    "search-switchboard-last-h-mal-o-sample-min-k1": record(O_LAST_H),
    "search-switchboard-attention-mal-o-sample-min-k1": record(O_ATTENTION),
    "search-switchboard-last-h-mal-io-sample-min-k1": record(search_result(io_sample_avg_k1=170)),
    "search-switchboard-last-h-mal-o-greedy": record(search_result(o_greedy=0)),
    "search-switchboard-last-h-random-o-greedy": record(search_result(o_greedy=0, o_sample_avg_k2=2)),
    "search-switchboard-last-h-normal-o-sample-min-k1": record(search_result(o_sample_min_k1=996)),
    "train-switchboard-last-h": record(
        {
            "remark": "whole",
            "test_perplexity": 41.32,
            "nll": 3.7213,
            "pairs": {"train": 5, "test": 2},
            "words": 9,
        }
    ),
}


@pytest.fixture
def page(tmp_path: Path) -> str:
    return write_study(tmp_path, STUDY, RECORDS, "speed", "relax").read_text()


def row_of(page: str, section: str, start: str) -> list[str]:
    """The cells of the first row that begins so, in the section of Switchboard."""
    part = page.split(f"## {section}")[1].split("\n## ")[0]
    part = part.split("**Switchboard**")[1] if "**Switchboard**" in part else part
    line = next(line for line in part.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip().replace("\\|", "|") for cell in line.replace("\\|", "\0").strip("| ").split(" | ")]


def test_table_3_holds_paper_ours_and_interval(page: str) -> None:
    row = [cell.replace("\0", "|") for cell in row_of(page, "Table 3", "last-h")]
    assert row == [
        "last-h",
        "99.4 | 99.6 [99, 99.8]",
        "0 | 0 [0, 0.383]",
        "0 | 1 [0.544, 1.83]†",
        "18.9 | 18.9 [16.6, 21.4]",
        "0 | not run",
        "18.7 | 17 [14.8, 19.5]",
        "0 | 0.2 [0.0549, 0.726]†",
    ]


def test_table_2_and_what_was_not_run(page: str) -> None:
    row = [cell.replace("\0", "|") for cell in row_of(page, "Table 2", "last-h")]
    assert row[3:5] == ["40.3 | 41.32", "3.69 | 3.72"]
    assert row[1] == "52.14 | not run"
    assert "Not run: speed, relax." in page


def test_a_difference_stands_under_its_note_and_what_agrees_is_not_listed(page: str) -> None:
    listed = page.split("## Differences")[1].split("\n## ")[0]
    under = listed.split(f"- {NOTES['table-3/switchboard/*']}")[1]
    assert "  - table-3: switchboard/last-h/o-sample-min-k1 (0 against 1)" in under
    assert "switchboard/last-h/o-sample-avg-k1" not in listed


def test_how_it_was_run_names_no_place(page: str) -> None:
    assert "egregious --data DIR --restarts 4" in page
    assert "/somewhere" not in page
    assert "searches: 10 (the paper: 10)" in page


def test_the_findings_are_decided_from_the_results() -> None:
    found = list(check_findings(Page(RECORDS)))
    ratio = verdict_on(found, "5 times min-hits", "Switchboard last-h")
    assert ratio.ours.startswith("18.90 [")
    assert ratio.verdict == "holds"
    io = verdict_on(found, "0.8 of o-avg", "Switchboard last-h")
    assert io.ours.startswith("0.90 [")
    assert io.verdict == "holds"
    assert verdict_on(found, "greedy decoding", "Switchboard last-h").verdict == "holds"
    assert verdict_on(found, "no random target", "Switchboard last-h").verdict == "fails"
    assert verdict_on(found, "99% of the normal", "Switchboard last-h").verdict == "holds by estimate"
    paired = verdict_on(found, "last-h, o-sample-avg-k1", "Switchboard")
    assert paired.ours.startswith("attention ahead, 111 to 0")
    assert paired.verdict == "holds"


def relaxed(before: int, after: int, **controls: Any) -> dict[str, Any]:
    """A relaxation of 500 targets."""
    rates = {name: Rate.of(n, 500).as_dict() for name, n in (("ever", before), ("end", before))}
    return {"lambda_c": 0.0, **rates, "projected": Rate.of(after, 500).as_dict(), **controls}


def with_chance(after: int, expected: float, p: float) -> dict[str, Any]:
    start = Rate.of(1, 500).as_dict()
    return {"chance": {"hits": after, "expected": expected, "p": p}, "start": start}


@pytest.mark.parametrize(
    ("result", "verdict", "ours", "cells"),
    [
        (relaxed(286, 0), "holds", "57.2% then 0.0% of 500", ["–", "–"]),
        (relaxed(286, 9), "fails", "57.2% then 1.8% of 500", ["–", "–"]),
        (
            relaxed(286, 0, **with_chance(0, 0.25, 1.0)),
            "holds",
            "57.2% then 0.0% of 500 (hits by chance: 0.25, p = 1)",
            ["0, 0.25 (p = 1)", "0.2% [0.0353, 1.12] of 500"],
        ),
        (
            relaxed(286, 2, **with_chance(2, 0.75, 0.17345)),
            "as chance",
            "57.2% then 0.4% of 500 (hits by chance: 0.75, p = 0.173)",
            ["2, 0.75 (p = 0.173)", "0.2% [0.0353, 1.12] of 500"],
        ),
        (
            relaxed(286, 9, **with_chance(9, 0.75, 0.0)),
            "fails",
            "57.2% then 1.8% of 500 (hits by chance: 0.75, p = 0)",
            ["9, 0.75 (p = 0)", "0.2% [0.0353, 1.12] of 500"],
        ),
        (
            relaxed(0, 1, **with_chance(1, 1.0, 1.0)),
            "fails",
            "0.0% then 0.2% of 500 (hits by chance: 1, p = 1)",
            ["1, 1 (p = 1)", "0.2% [0.0353, 1.12] of 500"],
        ),
    ],
)
def test_hits_after_projection_stand_beside_what_chance_gives(
    result: dict[str, Any], verdict: str, ours: str, cells: list[str]
) -> None:
    """A result from before the controls has dashes; one that never hit before projection always fails."""
    results = Page({"relax-switchboard-normal-embedding": record(result)})
    (found,) = check_findings(results)
    assert found.verdict == verdict
    assert found.ours == ours
    (line,) = (line for line in table_1(results) if line.startswith("| switchboard-normal-embedding "))
    assert line.strip("| ").split(" | ")[-2:] == cells


def test_what_projection_leaves_is_told_by_the_words_of_the_targets() -> None:
    by_words = {
        "1": {"n": 7, "ever": 7, "projected": 5},
        "2": {"n": 20, "ever": 18, "projected": 1},
        "3": {"n": 100, "ever": 90, "projected": 0},
        "14": {"n": 373, "ever": 10, "projected": 2},
    }
    name = "relax-switchboard-normal-embedding"
    page = table_1(Page({name: record(relaxed(125, 8, by_words=by_words))}))
    assert "| switchboard-normal-embedding | 7, 5 of 7 | 18, 1 of 20 | 100, 2 of 473 |" in page
    for other in (relaxed(125, 8), relaxed(125, 0, by_words=by_words)):
        assert not [line for line in table_1(Page({name: record(other)})) if "one word" in line]


def test_a_ratio_and_its_bootstrap() -> None:
    half = np.arange(400) < 200
    assert bootstrap_ratio(half, half) == (1.0, 1.0, 1.0)
    value, low, high = bootstrap_ratio(half, np.arange(400) < 20) or (0, 0, 0)
    assert value == 10.0
    assert 6 < low < 10 < high < 20
    none = half & False
    value, low, high = bootstrap_ratio(half, none) or (0, 0, 0)
    assert value == 400.0
    assert 340 < low < 380 < 420 < high < 460
    assert bootstrap_ratio(none, none) is None


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [(6, 5, 7, "holds"), (6, 4, 8, "holds by estimate"), (4, 3, 6, "fails by estimate"), (3, 2, 4, "fails")],
)
def test_verdicts(value: float, low: float, high: float, verdict: str) -> None:
    assert at_least(value, low, high, 5) == verdict


def test_a_curve_has_settled_when_99_percent_of_its_fall_is_done() -> None:
    assert settled([10.0, 5.0, 0.09, 0.0]) == 2
    assert settled([1.0, 1.0]) == 0


def test_the_papers_numbers_are_complete_and_consistent() -> None:
    assert len(TABLE_11) == 6 * len(MAL_HITS)
    for (corpus, arch, hit), value in TABLE_11.items():
        if hit.endswith("k1"):  # a looser bound can only hit more
            assert value <= TABLE_11[corpus, arch, hit[:-1] + "2"]
    for perplexity, nll in TABLE_2.values():
        assert np.log(perplexity) == pytest.approx(nll, abs=0.011)
    for key, value in TABLE_6.items():  # a whole output is a substring of itself
        assert value >= TABLE_5[key]


def test_the_command_shows_what_differs_from_the_defaults() -> None:
    lines = Page({}, "egregious", StudySpec(data="embedded", size="mini")).how_it_was_run("")
    assert any(line.endswith("egregious --data embedded --size mini") for line in lines)


def by_starts(hit: str, **counts: int) -> dict[str, Any]:
    """A search of 1,000 targets whose hits are known after so many starts."""
    starts = {name.removeprefix("after_"): {hit: Rate.of(n, N).as_dict()} for name, n in counts.items()}
    return {"restarts": max(map(int, starts)), "by_restarts": starts}


def test_more_starts_have_a_table_and_are_named_where_they_differ() -> None:
    name = "search-switchboard-{}-mal-{}-sample-min-k1"
    records = {
        name.format("last-h", "o"): record(by_starts("o-sample-avg-k1", after_1=200, after_10=250)),
        name.format("last-h", "io"): record(by_starts("io-sample-avg-k1", after_1=100, after_10=200)),
        name.format("attention", "o"): record(by_starts("o-sample-avg-k1", after_1=0)),
        name.format("attention", "io"): record(by_starts("io-sample-avg-k1", after_1=0)),
    }
    lines = restarts_table(Page(records))
    assert any(line.startswith("| Switchboard last-h | 1 |") and line.endswith("| 0.5 |") for line in lines)
    assert any(line.startswith("| Switchboard last-h | 10 |") and line.endswith("| 0.8 |") for line in lines)
    assert any(line.startswith("| Switchboard attention | 1 |") and line.endswith("| – |") for line in lines)
    said = " (last-h from 10 starts, attention from 1 start)"
    assert uneven(Page(records), "switchboard", "o-sample-avg-k1") == said
    assert uneven(Page(records), "ubuntu", "o-sample-avg-k1") == ""
    single = {key: record(by_starts("o-sample-avg-k1", after_1=5)) for key in list(records)[:1]}
    assert "one start" in restarts_table(Page(single))[0]
