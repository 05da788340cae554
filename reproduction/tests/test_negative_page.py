"""The page of He & Glass 2020 from made-up results: numbers, intervals, marks, verdicts and the comparison of
methods at equal hits."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from backtalk.stats import Rate
from reproduction.negative.curve import compare_methods, crossing, equal_rates, least_rise, path_of
from reproduction.negative.findings import at_most, check_findings, paired
from reproduction.negative.frequent import PairWords, choose_mmi, describe
from reproduction.negative.paper import CORPORA, HITS, LISTS, NOTES, R_THRES, SIZES, TABLE_3, TABLE_4
from reproduction.negative.study import STUDY
from reproduction.negative.tables import best_gan, frequent_rows, paper_rise, table_3, table_4
from reproduction.negative.words import mean_with_interval
from reproduction.page import UNEXPLAINED, Cell, Page, differences
from reproduction.runner import write_page
from reproduction.spec import StudySpec
from reproduction.tests.miniature import verdict_on, write_study
from reproduction.verdicts import falls

N = 500
NO_HELP = "the GAN lowers max-ratio no further than its positive updates alone"
START = "malicious-switchboard-o-sample-avg-k1"


def cost(after: float, interval: tuple[float, float], commonest: int = 60) -> dict[str, Any]:
    return {
        "pairs": 200,
        "perplexity": (42.0, after),
        "rise_interval": interval,
        "commonest": (80, commonest),
        "ent_2": (2.0, 2.5),
        "ent_3": (2.1, 2.4),
        "distinct_2": (0.1, 0.2),
        "length": (4.0, 5.0),
        "bleu_4": (0.5, 0.6),
        "overlap": 0.93,
        "lists": 100,
    }


def measured(first: int, hits: int) -> dict[str, Any]:
    """A list of 500 of which the targets from `first` on are hit, `hits` of them."""
    rate = Rate.of(hits, N).as_dict()
    return {
        "n": N,
        "left_out": 3,
        "rate": {"best": rate, "any": rate},
        "hit": [f"t-{i:03}" for i in range(first, first + hits)],
        "candidates": 10,
        "seconds": 1.0,
    }


def hardened(
    train: int, test: int, after: float, interval: tuple[float, float], **more: Any
) -> dict[str, Any]:
    steps = [(50, 42.0), (30, 42.42), (10, after)]
    return {
        "hit": "o-sample-avg-k1",
        "lists": {"train": measured(0, train), "test": measured(0, test)},
        "cost": cost(after, interval),
        "candidates": [{"hits": hits, "n": 100, "perplexity": value} for hits, value in steps],
        "iterations_kept": 2,
        "updates": 1234,
        **more,
    }


def record(result: dict[str, Any]) -> dict[str, Any]:
    versions = {"torch": "2.0", "backtalk": "0", "python": "3"}
    return {
        "key": "k",
        "settings": {},
        "result": result,
        "device": "cpu (test)",
        "versions": versions,
        "seconds": 1.5,
    }


def row(ratio: int, ent: float, length: float = 5.0, n: int = 200, floor: int = 2) -> dict[str, Any]:
    return {
        "perplexity": 43.0,
        "n": n,
        "max_ratio": Rate.of(ratio, n).as_dict(),
        "floor": Rate.of(floor, n).as_dict(),
        "ent_2_eos": ent,
        "ent_3_eos": ent + 0.25,
        "length": length,
        "bleu_4": 0.4,
    }


BASELINE = {
    "hit": "o-sample-avg-k1",
    "lists": {
        "train": measured(0, 139),
        "test": measured(0, 138) | {"with_dropout": Rate.of(100, 500).as_dict() | {"draws": [99, 101]}},
    },
}
RECORDS = {
    f"{START}-baseline": record(BASELINE),
    f"{START}-500": record(hardened(19, 67, 43.05, (0.02, 0.03))),
    f"{START}-1000": record(hardened(30, 66, 42.21, (0.001, 0.009))),
    f"{START}-2500": record(hardened(10, 20, 44.1, (0.04, 0.06))),
    "frequent-switchboard-baseline": record(
        {
            "rows": {
                "test set": row(20, 8.5),
                "baseline": row(80, 2.71),
                "greedy beside beam": row(40, 2.7, n=100),
                "beam": row(70, 1.5, n=100),
            }
        }
    ),
    "frequent-switchboard-negative-10": record({"row": row(30, 3.0)}),
    "frequent-switchboard-negative-1": record({"row": row(25, 2.9, length=5.0)}),
    "frequent-switchboard-negative-1-eos-0": record({"row": row(25, 2.9, length=1.5)}),
    "frequent-switchboard-negative-1-eos-1": record({"row": row(25, 2.9, length=4.0)}),
    "frequent-switchboard-gan-0.01": record({"row": row(110, 2.6), "candidates": [{"hits": 90, "n": 100}]}),
    "frequent-switchboard-gan-0.001": record({"row": row(90, 2.7), "candidates": [{"hits": 70, "n": 100}]}),
    "frequent-switchboard-gan-0": record(
        {"row": row(85, 2.7), "candidates": [{"hits": hits, "n": 100} for hits in (80, 60, 75, 68)]}
    ),
}


@pytest.fixture
def page(tmp_path: Path) -> str:
    path = write_study(tmp_path, STUDY, RECORDS, "samples", "words")
    again = tmp_path / "again" / "negative.md"
    spec = StudySpec(data="/somewhere/private", restarts=4, records=str(path.with_suffix(".json")))
    write_page(STUDY, spec, SIZES["paper"], [*RECORDS, "samples", "words"], tmp_path / "nowhere", again)
    assert again.read_text() == path.read_text(), "all that the page shows stands beside it"
    return path.read_text()


def cells_of(lines: list[str], start: str) -> list[str]:
    """The first row that begins so, `paper \\| ours` written with a plain bar."""
    line = next(line for line in lines if line.startswith(f"| {start}"))
    return [cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").strip("|").split("|")]


def test_table_3_holds_paper_ours_and_interval() -> None:
    lines = table_3(Page(RECORDS))
    assert cells_of(lines, "baseline")[:6] == [
        "baseline",
        "27.8 | 27.8 [24.1, 31.9]",
        "27.6 | 27.6 [23.9, 31.7]",
        "– | not run",
        "– | 20 [16.7, 23.7]",
        "42.81 | 42",
    ]
    assert cells_of(lines, "+neg-tr, 500 targets") == [
        "+neg-tr, 500 targets",
        "3.8 | 3.8 [2.45, 5.86]",
        "13.4 | 13.4 [10.7, 16.7]",
        "– | not run",
        "– | not run",
        "42.91 | 43.05",
        "0.23 | 2.5 [2, 3]†",
        "2, 1,234",
    ]
    assert paper_rise("switchboard", "o-sample-avg-k1", "2500") == 1.64
    ubuntu = lines[next(i for i, line in enumerate(lines) if "Ubuntu" in line) :]
    assert cells_of(ubuntu, "+neg-tr, 500 targets")[1:] == [
        "0 | not run", "2 | not run", "– | not run", "– | not run", "60.42 | not run", "1.56 | not run",
        "not run",
    ]  # fmt: skip


def test_models_searched_as_in_2019_stand_below_table_3_and_are_judged_by_their_own_baseline() -> None:
    lists = {"baseline": (160, 150), "500": (40, 90), "1000": (30, 60), "500-passes": (10, 80)}
    older = {
        f"as-2019-{row}": record({"lists": {"train": measured(0, train), "test": measured(0, test)}})
        for row, (train, test) in lists.items()
    }
    results = Page(RECORDS | older)
    lines = table_3(results)
    below = lines[next(i for i, line in enumerate(lines) if "eq. 6 of the paper of 2019" in line) :]
    assert cells_of(below, "baseline")[1:3] == ["27.8 | 32 [28.1, 36.2]†", "27.6 | 30 [26.1, 34.2]"]
    assert cells_of(below, "+neg-tr, 500 targets")[1] == "3.8 | 8 [5.93, 10.7]†"
    assert cells_of(below, "+500, more passes")[1:3] == ["3.8 | 2 [1.09, 3.64]†", "13.4 | 16 [13, 19.5]"]
    place = "Switchboard, o-sample-avg-k1, 500"
    found = {(one.finding, one.where): one for one in check_findings(results)}
    under = "the training list is hit to less than 5%"
    assert found[under, f"{place}, searched as in 2019"].verdict == "fails"
    assert found[under, f"{place}, more passes, searched as in 2019"].verdict == "holds"
    fewer = found["fewer test targets are hit than before", f"{place}, searched as in 2019"]
    assert "30% to 18%" in fewer.ours
    assert "60 gone, 0 new" in fewer.ours
    assert (under, f"{place}, more passes") not in found, "that row has not run"
    again = "paraphrases lower the test list's hits", f"{place} to 1000, searched as in 2019"
    assert "18% to 12%" in found[again].ours


def test_table_4_takes_the_best_gan_by_validation_pairs() -> None:
    results = Page(RECORDS)
    best = best_gan(results, "switchboard")
    assert best is not None
    assert best[0] == "0.001"
    lines = table_4(results)
    assert cells_of(lines, "+GAN")[1:6] == [
        "42.69 | 43",
        "49 | 45 [38.3, 51.9]",
        "2.66 | 2.7",
        "2.35 | 2.95†",
        "5",
    ]
    assert cells_of(lines, "+neg-train 1% ")[2:] == [
        "9.8 | 12.5 [8.61, 17.8]", "5.48 | 2.9†", "6.03 | 3.15†", "5", "0.475 | 0.4",
    ]  # fmt: skip
    assert cells_of(lines, "+the GAN's positive updates alone")[1:3] == ["– | 43", "– | 42.5 [35.9, 49.4]"]
    assert any("70 to 70%" in one and "alone: 60 to 75%." in one for one in lines)
    assert cells_of(lines, "floor") == ["floor", "", "– | 1 [0.275, 3.57]", "", "", "", ""]
    assert cells_of(lines, "test set")[1] == ""
    assert cells_of(lines, "+MMI")[2] == "23 | not run"
    assert "gan" not in frequent_rows(results, "ubuntu")


def test_every_finding_has_its_verdict() -> None:
    found = list(check_findings(Page(RECORDS)))

    def verdict(finding: str, where: str) -> str:
        return verdict_on(found, finding, where).verdict

    place = "Switchboard, o-sample-avg-k1"
    under, fewer = "less than 5%", "fewer test targets"
    assert verdict(under, f"{place}, 500") == "holds by estimate"  # 3.8% [2.45, 5.86]
    assert verdict(under, f"{place}, 1000") == "fails by estimate"  # 6% [4.2, 8.4]
    assert verdict(under, f"{place}, 2500") == "holds"
    assert verdict(fewer, f"{place}, 500") == "holds"
    within = "perplexity rises by 3%"
    assert verdict(within, f"{place}, 500") == "holds"
    assert verdict(within, f"{place}, 2500") == "fails"
    assert verdict("overlap", f"{place}, 500") == "holds"
    falls = "paraphrases lower"
    assert verdict(falls, f"{place}, 500 to 1000") == "holds by estimate"  # 1 gone, none new
    assert verdict(falls, f"{place}, 1000 to 2500") == "holds"
    assert "46 gone, 0 new" in verdict_on(found, falls, f"{place}, 1000 to 2500").ours
    assert verdict("max-ratio falls", "baseline to negative-10") == "holds"
    assert verdict("max-ratio falls", "negative-10 to negative-1") == "holds by estimate"
    assert verdict("Ent-2 rises", "baseline to negative-10") == "holds"
    assert verdict("Ent-2 rises", "negative-10 to negative-1") == "fails"
    assert verdict(NO_HELP, "Switchboard") == "holds by estimate"
    assert verdict("beam search", "Switchboard") == "holds"
    assert verdict("scale 0: ", "Switchboard") == "holds"
    assert verdict("scale 1: ", "Switchboard") == "fails"


def gan_verdict(control: int | None, gan: int) -> tuple[str, str]:
    """With a baseline of 80 of 200."""
    records: dict[str, Any] = {"frequent-switchboard-baseline": RECORDS["frequent-switchboard-baseline"]}
    for name, ratio in (("0", control), ("0.001", gan)):
        if ratio is not None:
            found = {"row": row(ratio, 3.0), "candidates": [{"hits": 1, "n": 9}]}
            records[f"frequent-switchboard-gan-{name}"] = record(found)
    (one,) = (found for found in check_findings(Page(records)) if found.finding == NO_HELP)
    assert one.paper == "37.4% to 49% from the baseline"
    return one.ours, one.verdict


def test_the_gan_is_judged_against_its_positive_updates_alone() -> None:
    assert gan_verdict(80, 20)[1] == "fails"
    assert gan_verdict(30, 28)[1] == "fails by estimate"
    ours, verdict = gan_verdict(20, 60)  # far below the baseline, which the positive updates do without it
    assert (ours, verdict) == ("10% [6.57, 14.9] of 200 to 30% [24.1, 36.7] of 200", "holds")
    assert gan_verdict(4, 5)[1] == "at the floor"
    ours, verdict = gan_verdict(None, 20)
    assert ours == "40% [33.5, 46.9] of 200 to 10% [6.57, 14.9] of 200 from the baseline"
    assert verdict == "not run"


def test_two_rows_at_the_floor_are_not_told_apart() -> None:
    title, where = "max-ratio falls", "negative-10 to negative-1"

    def verdict(floor: int | None) -> tuple[str, str]:
        rows = {"negative-10": row(1009, 3.0, n=9010), "negative-1": row(1007, 3.1, n=9010)}
        for one in rows.values():
            one["floor"] = None if floor is None else Rate.of(floor, 9010).as_dict()
        records = {f"frequent-switchboard-{name}": record({"row": one}) for name, one in rows.items()}
        (found,) = (one for one in check_findings(Page(records)) if one.finding == title)
        assert found.where.endswith(where)
        return found.verdict, found.ours.partition("; ")[2]

    assert verdict(1007) == ("at the floor", "floor 11.2%")
    assert verdict(400) == ("holds by estimate", "")
    assert verdict(None) == ("holds by estimate", "")


def test_the_page_in_the_docs_can_be_built_again(tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "docs" / "studies" / "negative.json"
    parts = list(json.loads(kept.read_text())["parts"])
    page = tmp_path / "negative.md"
    write_page(STUDY, StudySpec(records=str(kept)), SIZES["paper"], parts, tmp_path, page)
    assert "## Tables 4 and 9" in page.read_text()


def test_a_rise_that_the_paper_has_itself_is_no_finding() -> None:
    name = "malicious-ubuntu-io-sample-min-k1-2500"  # 63.37 from 59.49
    records = {name: record(hardened(0, 0, 60.0, (0.4, 0.45), hit="io-sample-min-k1"))}
    assert not [one for one in check_findings(Page(records)) if "perplexity" in one.finding]


def test_paired_counts_what_is_gone_and_what_is_new() -> None:
    first = {"lists": {"test": {"hit": ["a", "b", "c", "d", "e", "f"]}}}
    second = {"lists": {"test": {"hit": ["f", "g"]}}}
    found = paired(first, second)
    assert found is not None
    assert found[:2] == (5, 1)
    assert found[2] == pytest.approx(2 * (1 + 6) / 64)
    assert paired(first, {}) is None


def test_where_only_rates_are_known_intervals_decide() -> None:
    title = "fewer test targets are hit than before"
    start = hardened(90, 90, 60.0, (0.0, 0.0))
    for hits, verdict in ((20, "holds"), (85, "holds by estimate"), (90, "no difference")):
        rows = {"baseline": start, "500": hardened(hits, hits, 60.0, (0.0, 0.0))}
        for row in rows.values():
            for one in row["lists"].values():
                one.pop("hit", None)
        named = {f"malicious-switchboard-o-sample-avg-k1-{name}": record(row) for name, row in rows.items()}
        (one,) = (found for found in check_findings(Page(named)) if found.finding == title)
        assert (one.verdict, "gone" in one.ours) == (verdict, False)


def test_at_most_and_falls() -> None:
    assert at_most(1.0, 0.5, 2.0, 3.0) == "holds"
    assert at_most(1.0, 0.5, 4.0, 3.0) == "holds by estimate"
    assert at_most(3.5, 2.5, 4.0, 3.0) == "fails by estimate"
    assert at_most(4.0, 3.5, 5.0, 3.0) == "fails"
    assert [falls(2, 1), falls(1, 2), falls(1, 1)] == ["holds", "fails", "no difference"]
    assert falls(2, 1, is_clear=False) == "holds by estimate"


def test_methods_are_compared_at_the_lowest_rate_that_all_reach() -> None:
    steps = [{"hits": 40, "n": 100, "perplexity": 50.0}, {"hits": 20, "n": 100, "perplexity": 51.0},
             {"hits": 10, "n": 100, "perplexity": 55.0}]  # fmt: skip
    first = path_of(steps)
    assert first == [(40.0, 0.0), (20.0, pytest.approx(2.0)), (10.0, pytest.approx(10.0))]
    second = [(40.0, 0.0), (30.0, 1.0), (15.0, 1.5), (18.0, 2.0)]
    third = [(40.0, 0.0), (35.0, 0.1)]
    assert equal_rates([first, second]) == [15.0]
    assert equal_rates([first, second, third]) == [35.0, 15.0]  # of all three, and of two
    assert crossing(first, 15.0) == pytest.approx(6.0)  # half way between 20 and 10
    assert crossing(second, 15.0) == 1.5
    assert crossing(second, 5.0) is None
    assert crossing(first, 50.0) == 0.0  # there from the start
    # Down at 12% for +5%, and later still there for +2%.
    back = [(40.0, 0.0), (12.0, 5.0), (12.0, 2.0), (30.0, 1.0)]
    assert least_rise(back, 12.0) == 2.0
    assert least_rise(back, 33.0) == pytest.approx(1.0)
    assert least_rise(back, 10.0) is None


def test_the_verdict_on_the_methods_is_on_the_page(tmp_path: Path) -> None:
    rows = {"default": 44.0, "unlikelihood": 43.0, "npo": 46.0, "hits": 70.0}
    records = {
        f"{START}-500-{name}": record(hardened(5, 9, after, (0.0, 0.1))) for name, after in rows.items()
    }
    path = write_study(tmp_path, STUDY, records)
    text = path.read_text()
    assert "unlikelihood (+2.38%), then negative (+4.76%), then NPO (+9.52%)." in text
    assert re.search(r"Not drawn: .*averaged over the hits, .*\+67%", text)
    drawn = (path.with_suffix("") / "methods.svg").read_text()
    assert "NPO, default settings" in drawn
    assert "averaged over the hits" not in drawn
    assert text.count("the cheapest by") == 1


def test_every_settings_that_rules_share_has_its_own_verdict(tmp_path: Path) -> None:
    rows = {"default": 44.0, "npo": 46.0, "fwa-kl-3": 43.0, "npo-fwa-kl-3": 42.5}
    records = {
        f"{START}-500-{name}": record(hardened(5, 9, after, (0.0, 0.1))) for name, after in rows.items()
    }
    lines = compare_methods(Page(records, pictures=tmp_path))
    said = [line for line in lines if "the cheapest by" in line]
    assert [line.partition(",")[0] for line in said] == [
        "**With the default settings",
        "**With FWA and KL 3",
    ]
    assert "negative (+4.76%), then NPO (" in said[0]
    assert "NPO (+1.19%), then negative (" in said[1]
    del records[f"{START}-500-npo"], records[f"{START}-500-npo-fwa-kl-3"]
    alone = compare_methods(Page(records, pictures=tmp_path))
    assert any(line.startswith("Too few") for line in alone)


def tried(ratio: int, bleu: float, high: float, **more: Any) -> dict[str, Any]:
    gain = {"gain": bleu - 1.0, "low": -0.5, "high": high}
    return {"max_ratio": Rate.of(ratio, 100).as_dict(), "bleu_4": bleu, "bleu_gain": gain, **more}


def test_mmi_is_chosen_by_max_ratio_with_no_clear_loss_of_bleu() -> None:
    plain = tried(40, 1.0, 0.0)
    good = [tried(30, 1.0, 0.3), tried(20, 0.9, 0.1), tried(20, 0.95, 0.1), tried(5, 0.4, -0.2)]
    assert choose_mmi(plain, good) is good[2]
    assert choose_mmi(plain, [tried(45, 2.0, 1.5), tried(40, 1.0, 0.1), tried(10, 0.9, -0.01)]) is None


def test_the_page_says_how_mmi_was_chosen() -> None:
    settings = [tried(20, 0.9, 0.1, weight=0.3, words=5), tried(5, 0.4, -0.2, weight=0.5, words=5)]

    def said(**found: Any) -> str:
        records = {"frequent-switchboard-mmi": record({"row": row(20, 4.0), "tried": settings, **found})}
        (line,) = (one for one in table_4(Page(records)) if one.startswith("- MMI"))
        return line

    line = said(weight=0.3, words=5)
    assert line.startswith("- MMI: lambda 0.3, gamma 5, ")
    assert "of 2 settings less 1" in line
    assert line.endswith(": -0.10 [-0.50, +0.10].")
    none = said(weight=0.0, words=0)
    assert none.startswith("- MMI: plain decoding")


def test_a_row_by_hand() -> None:
    real = [["a", "b", "c", "d"], ["d"], ["e", "f"], ["g"]]
    asked = PairWords([["x"], ["x", "y"], ["x"], ["z"]], real, longest=3)
    found = describe([["a", "b"], ["c"], ["a", "b"], ["a", "b"]], asked, 12.0)
    assert (found["perplexity"], found["n"], found["length"]) == (12.0, 4, 7 / 4)
    assert (found["max_ratio"]["hits"], found["floor"]["hits"], found["floor"]["n"]) == (3, 2, 4)
    # "a b" and "b end" three times each, "c end" once.
    shares = (3 / 7, 3 / 7, 1 / 7)
    assert found["ent_2_eos"] == pytest.approx(-sum(share * math.log(share) for share in shares))
    assert found["ent_3_eos"] == 0.0  # "a b end" alone
    people = describe(real, asked)
    assert (people["bleu_4"], people["floor"], people["length"]) == (None, None, 2.0)
    # Of people's replies "a b end", "d end", "e f end", "g end": six bigrams, two trigrams.
    assert people["ent_2_eos"] == pytest.approx(math.log(6))
    assert people["ent_3_eos"] == pytest.approx(math.log(2))
    assert asked.first(3).inputs == [["x"], ["x", "y"], ["x"]]


def test_a_mean_has_its_interval() -> None:
    found = mean_with_interval([1.0, 3.0])  # standard deviation sqrt(2), standard error 1
    assert (found["mean"], found["n"]) == (2.0, 2)
    assert found["low"] == pytest.approx(2 - 1.96)
    assert mean_with_interval([])["n"] == 0


def test_how_it_was_run_names_no_place_and_what_is_missing(page: str) -> None:
    assert "negative --data DIR --restarts 4" in page
    assert "/somewhere" not in page
    assert "Not run: samples, words." in page
    assert "8 iterations over" in page


def test_a_difference_stands_under_its_note(page: str) -> None:
    listed = page.split("## Differences")[1].split("\n## ")[0]
    under = listed.split(f"- {NOTES['table-3/*/rise']}")[1].split("\n- ")[0]
    assert "k1/500/rise (0.23 against 2.5)" in under
    slice_cell = Cell("table-3/ubuntu/o-sample-min-k1/500/train", 0.0, 5.0, (4.0, 6.0))
    unknown_cell = Cell("table-4/switchboard/test set/max-ratio", 10.0, 60.0)
    lines = differences([slice_cell, unknown_cell], NOTES)
    assert lines[0] == f"- {UNEXPLAINED}"
    assert f"- {NOTES['*/ubuntu/*']}" in lines


def test_the_papers_tables_are_whole() -> None:
    assert {key[:2] for key in TABLE_3} == {(corpus, hit) for corpus in CORPORA for hit in HITS[corpus]}
    assert len(TABLE_3) == 4 * (1 + len(LISTS))
    for corpus in CORPORA:
        for share in R_THRES[corpus]:
            assert (corpus, f"negative-{share[:-1]}") in TABLE_4


def test_the_control_of_the_gan_may_not_have_run() -> None:
    records = {name: one for name, one in RECORDS.items() if name != "frequent-switchboard-gan-0"}
    assert cells_of(table_4(Page(records)), "+the GAN's positive")[1:3] == ["– | not run", "– | not run"]
    assert {one.finding: one.verdict for one in check_findings(Page(records))}[NO_HELP] == "not run"
