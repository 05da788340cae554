"""Two runs compared: known answers, what can't be paired, what is unfair, and texts that stay inert."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtalk.cli import run as run_command
from backtalk.errors import InputError
from backtalk.report.comparison import Comparison, compare_runs, p_value
from backtalk.report.comparison_console import print_comparison
from backtalk.report.run_page import render_comparison
from backtalk.runs.export import write_comparison, write_record
from backtalk.specs import flat_spec, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of
from backtalk.types import Finding, Target
from tests.forging import forge_facts
from tests.report.samples import HOSTILE, finding
from tests.report.test_page import ALLOWED, Page
from tests.web.worlds import play

T_OUT, T_IN = -3.2, -4.1
LIKELY, UNLIKELY = [-1.0, -2.0], [-6.0, -7.0]
"""A mean above T_out, and one that misses it even at k2."""
TARGETS = [
    Target(f"t{i}", f"nobody asked you {i}", "rude" if i < 6 else "refusing", 1 + i % 3) for i in range(10)
]


def make_run(
    folder: Path,
    findings: Sequence[Finding],
    cases: Sequence[Target] = TARGETS,
    thresholds: tuple[float, float | None] = (T_OUT, T_IN),
    **spec: Any,
) -> Path:
    """A finished run with these findings."""
    asked = spec_values(flat_spec(AuditSpec, {"hit": "io-sample-avg-k1", **spec}))
    facts = {
        "thresholds": {"T_out": thresholds[0], "T_in": thresholds[1]},
        "reference": "made up",
        "fingerprint": f"weights of {asked['model']}",
        "words": {},
        "versions": {},
        "hardware": {"device": "cpu"},
        "access": "WEIGHTS",
        "depends_on": {},
    }
    with Run.create(folder, asked, facts, cases, identity_of(asked, "f00d", cases), len(cases)) as run:
        run.commit_block(0, findings, 1.0)
        run.set_state("finished")
    return folder


def found(hits: set[int], targets: Sequence[Target] = TARGETS, **changes: Any) -> list[Finding]:
    return [
        finding(target, tokens=LIKELY if i in hits else UNLIKELY, **changes)
        for i, target in enumerate(targets)
    ]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Of ten: six fixed (0 to 5), one remains (6), one is new (7), two never hit."""
    before = make_run(tmp_path / "before", found({0, 1, 2, 3, 4, 5, 6}))
    after = make_run(tmp_path / "after", found({6, 7}, trigger="and now"), model="hardened", seed=2)
    return before, after


def shown(comparison: Comparison, width: int = 120, unmask: bool = False) -> str:
    file = io.StringIO()
    print_comparison(comparison, Console(file=file, width=width), unmask)
    return file.getvalue()


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?", text)]


def test_runs_that_two_scorers_rated_are_compared_by_other_criteria_only(tmp_path: Path) -> None:
    sides = []
    for name in ("one", "two"):
        folder = make_run(tmp_path / name, found({0, 1}, scores={"toxicity": 0.9, "mean": -1.0}))
        forge_facts(folder, scorer=name, depends_on={"scorer's weights": f"those of {name}"})
        sides.append(folder)
    before, after = sides
    with pytest.raises(
        InputError, match=r"two scorers rated the replies: .*one by one and those of .*two by two"
    ):
        compare_runs(before, after, "toxic-0.5")
    assert "o-sample-avg-k1" in {tally.name for tally in compare_runs(before, after).tallies}
    forge_facts(after, depends_on={"scorer's weights": "those of one"})
    (tally,) = (one for one in compare_runs(before, after, "toxic-0.5").tallies if one.name == "toxic-0.5")
    assert (tally.before.hits, tally.after.hits) == (10, 10)


# Known answers


def test_the_counts_the_intervals_and_the_test(pair: tuple[Path, Path]) -> None:
    comparison = compare_runs(*pair)
    main = comparison.main
    assert (comparison.criterion, comparison.n) == ("io-sample-avg-k1", 10)
    assert (main.before.hits, main.after.hits, main.before.n, main.after.n) == (7, 2, 10, 10)
    assert (main.fixed, main.remaining, main.new) == (6, 1, 1)
    # P(at least 6 of 7 changes go one way) twice: 2 * (7 + 1) / 2^7.
    assert main.p == 2 * (7 + 1) / 2**7 == 0.125
    # (rate + z^2 / 2n -+ z sqrt(rate (1 - rate) / n + z^2 / 4n^2)) / (1 + z^2 / n), z = 1.959964.
    assert (main.before.low, main.before.high) == pytest.approx((0.39678, 0.89221), abs=1e-5)
    assert (main.after.low, main.after.high) == pytest.approx((0.05668, 0.50984), abs=1e-5)
    assert not main.disjoint
    assert numbers(comparison.headline) == [10, 7, 2, 6, 1, 1, 0.12]
    assert [(p.change, p.after.id) for p in comparison.pairs if p.change != "fixed"] == [
        ("remaining", "t6"),
        ("new", "t7"),
        ("neither", "t8"),
        ("neither", "t9"),
    ]
    # The gravest first: severity is 1 + i % 3; equally likely ones go by id.
    assert [p.before.id for p in comparison.changed("fixed")] == ["t2", "t5", "t1", "t4", "t0", "t3"]


def test_by_category(pair: tuple[Path, Path]) -> None:
    rude, refusing = compare_runs(*pair).categories
    assert (rude.name, rude.before.n, rude.fixed, rude.remaining, rude.new) == ("rude", 6, 6, 0, 0)
    assert (refusing.name, refusing.before.n, refusing.fixed, refusing.remaining) == ("refusing", 4, 0, 1)
    assert (rude.p, refusing.p, refusing.new) == (2 / 2**6, 1.0, 1)
    # 6 of 6 is at least 61% and 0 of 6 at most 39%.
    assert rude.disjoint
    assert not refusing.disjoint


def test_every_criterion_that_both_can_decide(pair: tuple[Path, Path]) -> None:
    tallies = {tally.name: tally for tally in compare_runs(*pair).tallies}
    assert len(tallies) == 9
    assert (tallies["o-greedy"].before.hits, tallies["o-greedy"].p) == (0, 1.0)
    assert tallies["o-sample-min-k1"].fixed == 6


def test_one_criterion_is_asked_for(pair: tuple[Path, Path]) -> None:
    comparison = compare_runs(*pair, "contains")
    assert (comparison.criterion, comparison.main.before.hits) == ("contains", 0)
    assert "as part of a reply before and 0 after" in comparison.headline


def test_the_main_criterion_is_what_both_aimed_at(tmp_path: Path) -> None:
    runs = {
        name: make_run(tmp_path / name, found({1}), hit=hit, thresholds=(T_OUT, into))
        for name, hit, into in (
            ("greedy", "o-greedy", T_IN),
            ("greedy too", "o-greedy", T_IN),
            ("min", "o-sample-min-k1", T_IN),
            ("no language model", "o-sample-min-k1", None),
        )
    }
    assert compare_runs(runs["greedy"], runs["greedy too"]).criterion == "o-greedy"
    assert compare_runs(runs["greedy"], runs["min"]).criterion == "io-sample-avg-k1"
    bare = compare_runs(runs["greedy"], runs["no language model"])
    assert bare.criterion == "o-sample-avg-k1"
    assert "io-sample-avg-k1" in bare.undecided
    with pytest.raises(InputError, match="io-sample-avg-k2 can't be decided"):
        compare_runs(runs["greedy"], runs["no language model"], "io-sample-avg-k2")


def test_any_restart_counts(tmp_path: Path) -> None:
    twice = [finding(t, r, tokens=LIKELY if r else UNLIKELY) for t in TARGETS for r in (0, 1)]
    comparison = compare_runs(make_run(tmp_path / "a", twice), make_run(tmp_path / "b", found(set())))
    assert (comparison.main.fixed, comparison.main.p) == (10, 2 / 2**10)
    assert comparison.pairs[0].before.mean == -1.5


def test_the_same_run_twice_changes_nothing(pair: tuple[Path, Path]) -> None:
    comparison = compare_runs(pair[0], pair[0])
    assert all((t.fixed, t.new, t.p) == (0, 0, 1.0) for t in comparison.tallies + comparison.categories)
    assert comparison.main.remaining == 7
    assert (comparison.differences, comparison.warnings, comparison.left_out) == ([], [], [])


@pytest.mark.parametrize(
    ("p", "words"), [(1.0, "1"), (0.125, "0.12"), (0.00123, "0.0012"), (2.1e-9, "2.1e-9"), (1e-40, "1e-40")]
)
def test_a_p_value_in_two_digits(p: float, words: str) -> None:
    assert p_value(p) == words


# What can't be paired


def test_unequal_cases_are_left_out_and_named(tmp_path: Path) -> None:
    others = [*TARGETS[2:], Target("t0", "another sentence of that id"), Target("t99", "ask somebody else")]
    status = {"t2": "skipped", "t3": "failed", "t4": "nothing"}
    after = [
        Finding(t.id, 0, status[t.id], t.text) if t.id in status else finding(t, tokens=LIKELY)
        for t in others
        if t.id != "t5"
    ]
    comparison = compare_runs(
        make_run(tmp_path / "before", found(set(range(10)))), make_run(tmp_path / "after", after, others)
    )
    words = re.compile(r"(another|only|skipped|failed|not tried)\b.* (before|after)$")
    assert {one.id: words.findall(one.reason)[0] for one in comparison.left_out} == {
        "t0": ("another", "after"),
        "t1": ("only", "before"),
        "t2": ("skipped", "after"),
        "t3": ("failed", "after"),
        "t5": ("not tried", "after"),
        "t99": ("only", "after"),
    }
    main = comparison.main
    assert (comparison.n, main.before.hits, main.after.hits, main.fixed) == (5, 5, 4, 1)
    assert [pair.before.id for pair in comparison.changed("fixed")] == ["t4"]
    text = shown(comparison)
    assert "6 sentences left out of all numbers above:" in text
    assert "1 only in the run before; 1 skipped in the run after" in " ".join(text.split())


def test_nothing_in_common_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = [Target("x", "ask somebody else")]
    before = make_run(tmp_path / "before", found({1}))
    after = make_run(tmp_path / "after", found({0}, other), other)
    assert run_command(["compare", str(before), str(after)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert str(before) in line
    assert "no case in common" in line


def test_what_is_no_run_is_an_error(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run folder"):
        compare_runs(pair[0], tmp_path / "none")
    with pytest.raises(InputError, match=r"'io-sample-avg'.* 'io-sample-avg-k1'"):
        compare_runs(pair[0], pair[1], "io-sample-avg")
    bare = {"search": {"name": "gibbs"}, "hit": "o-greedy"}
    Run.create(tmp_path / "other", bare, {}, TARGETS, "", 1).close()
    with pytest.raises(InputError, match="thresholds"):
        compare_runs(pair[0], tmp_path / "other")


# What makes it unfair


def test_a_fresh_seed_and_another_model_are_named_and_fair(pair: tuple[Path, Path]) -> None:
    comparison = compare_runs(*pair)
    assert [(d.name, d.before, d.after, d.unfair) for d in comparison.differences] == [
        ("model", "chitchat", "hardened", False),
        ("seed", "1", "2", False),
    ]
    assert comparison.warnings == []
    assert "model chitchat -> hardened, seed 1 -> 2" in " ".join(shown(comparison).split())


def test_another_budget_or_search_is_not_fair(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", found({1}))
    after = make_run(tmp_path / "after", found(set()), sweeps=60, as_published=True, max_time="1h")
    comparison = compare_runs(before, after)
    assert [(one.name, one.before, one.after, one.unfair) for one in comparison.differences] == [
        ("sweeps", "6", "60", True),
        ("as_published", "no", "yes", True),
    ]
    assert len(comparison.warnings) == 1
    assert comparison.warnings[0].startswith("Not a fair comparison")
    assert comparison.warnings[0] in " ".join(shown(comparison).split())
    assert "Not a fair comparison" in render_comparison(comparison)


def test_each_run_is_judged_by_its_own_thresholds(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", found({1, 2}))
    after = make_run(tmp_path / "after", found({1, 2}), thresholds=(-1.0, T_IN))
    comparison = compare_runs(before, after)
    # LIKELY has a mean of -1.5: above -3.2, below -1.
    assert (comparison.main.before.hits, comparison.main.after.hits) == (2, 0)
    (warning,) = comparison.warnings
    assert warning.startswith("T_out")
    assert numbers(warning) == [3.2, 1]


def test_a_run_that_is_not_over_is_said(tmp_path: Path) -> None:
    before = make_run(tmp_path / "before", found({1}))
    with Run.open(before) as run:
        spec, facts = run.spec, run.facts
    with Run.create(tmp_path / "after", spec, facts, TARGETS, "", 5) as run:
        run.commit_block(0, found({1})[:5], 1.0)
        run.set_state("stopped", "--max-time 10m was reached")
    comparison = compare_runs(before, tmp_path / "after")
    assert comparison.n == 5
    (warning,) = comparison.warnings
    assert "--max-time 10m was reached" in warning


# The faces


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_console_says_it_and_fits(pair: tuple[Path, Path], width: int) -> None:
    comparison = compare_runs(*pair)
    text = shown(comparison, width)
    squeezed = " ".join(text.split())
    assert squeezed.startswith(comparison.headline)
    assert "70% (40 to 89%) before" in squeezed
    assert "20% (6 to 51%) after" in squeezed
    assert max(map(cell_len, text.splitlines())) <= width
    assert "Remaining, 1;" in squeezed
    assert "New, 1;" in squeezed
    assert "what do you think of me" in squeezed
    assert "and now" in squeezed
    assert "> i am not sure what" in squeezed
    assert "1 in 20" in squeezed  # exp(-3)
    assert "rude 6 of 6" in squeezed
    assert "nobody" not in text
    assert "n***** a**** y** 6" in text
    unmasked = shown(comparison, width, unmask=True)
    assert "nobody asked you 6" in unmasked
    assert "--unmask" not in unmasked


def hostile(tmp_path: Path) -> Comparison:
    """Every text of it tries to break out; half a surrogate pair included."""
    targets = [Target(f"h{i}", text, category=HOSTILE[i - 1]) for i, text in enumerate(HOSTILE)]
    findings = [finding(t, trigger=t.text, reply=t.text, tokens=LIKELY) for t in targets]
    missing = [Finding(targets[-1].id, 0, "skipped", targets[-1].text, note=targets[-1].text)]
    before = make_run(tmp_path / "b", findings, targets)
    after = make_run(
        tmp_path / "a",
        findings[:-1] + missing,
        targets,
        model=HOSTILE[0],
        reference=HOSTILE[1],
        targets=HOSTILE[2],
    )
    return compare_runs(before, after)


@pytest.mark.parametrize("width", [60, 120])
def test_hostile_text_does_nothing_to_a_terminal(tmp_path: Path, width: int) -> None:
    text = shown(hostile(tmp_path), width, unmask=True)
    assert max(map(cell_len, text.splitlines())) <= width
    assert not re.search("[\u200b\u202a-\u202e\x00-\x09\x1b\ud800-\udfff]", text)
    assert "[bold]surrogates" in " ".join(text.split())


def test_hostile_text_is_inert_on_the_page(tmp_path: Path) -> None:
    text = render_comparison(hostile(tmp_path))
    page = Page(text)
    assert page.tags <= ALLOWED
    assert len(page.ids) == len(set(page.ids))
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search("[\u200b\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r"&[#\w]+;", "", text))
    assert not any(name.startswith("on") or name in {"style", "src"} for _, name, _ in page.attributes)
    text.encode()


def test_the_page_shows_both_findings_side_by_side_and_masked(pair: tuple[Path, Path]) -> None:
    comparison = compare_runs(*pair)
    text = render_comparison(comparison)
    page = Page(text)
    seen = " ".join(" ".join(page.seen).split())
    assert comparison.headline in seen
    assert text.count('<details class="case') == 8
    assert "2 sentences that neither run hit are not shown" in seen
    (new,) = re.findall(r'<details class="case hit k1".*?</details>', text, re.DOTALL)
    assert new.index("Before: no hit") < new.index("After: hit")
    assert "what do you think of me" in new
    assert "and now" in new
    assert "1 in 440,000 sampled replies" in new  # exp(-13)
    assert "nobody" not in seen + "".join(value for _, _, value in page.attributes)
    assert "nobody asked you 7" in "".join(page.whole)
    policy = next(v for _, _, v in page.attributes if "src" in v).split("; ")
    assert policy[0] == "default-src 'none'"
    assert policy[1].startswith("style-src 'sha256-")


def test_the_files_are_written_whole(pair: tuple[Path, Path], tmp_path: Path) -> None:
    comparison = compare_runs(*pair)
    write_comparison(comparison, tmp_path / "page.html")
    write_record(comparison, tmp_path / "record.json")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_comparison(comparison)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["criterion"] == "io-sample-avg-k1"
    assert [tally["fixed"] for tally in record["tallies"] if tally["name"] == record["criterion"]] == [6]
    assert [pair["change"] for pair in record["pairs"]].count("neither") == 2
    assert record["before"]["settings"]["sweeps"] == 6
    assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(InputError, match=r"none/page\.html: No such file"):
        write_comparison(comparison, tmp_path / "none" / "page.html")
    with pytest.raises(InputError, match="Is a directory"):
        write_record(comparison, tmp_path)


def test_infinite_scores_are_no_trouble(tmp_path: Path) -> None:
    odd = [finding(t, tokens=[-math.inf, -1.0], losses=[math.inf, math.nan]) for t in TARGETS]
    comparison = compare_runs(make_run(tmp_path / "before", found({1})), make_run(tmp_path / "after", odd))
    assert comparison.main.fixed == 1
    json.dumps(comparison.as_dict(), allow_nan=False)
    Page(render_comparison(comparison))


def test_the_command(pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = map(str, pair)
    page, record = str(tmp_path / "c.html"), str(tmp_path / "c.json")
    options = ["--hit", "o-sample-avg-k1", "--html", page, "--json", record, "--unmask"]
    assert run_command(["compare", before, after, *options]) == 0
    out = capsys.readouterr().out
    assert numbers(out)[:3] == [10, 7, 2]
    assert "nobody asked you 6" in out
    assert Path(page).exists()
    assert json.loads(Path(record).read_text())["criterion"] == "o-sample-avg-k1"


# Played conversations


@pytest.mark.parametrize("width", [80, 140])
def test_played_runs_are_compared_by_toxicity_and_only_what_is_toxic_is_masked(
    tmp_path: Path, width: int
) -> None:
    runs = play(tmp_path / "before", rude=(1, 4)), play(tmp_path / "after", rude=(4, 5))
    comparison = compare_runs(*runs)
    assert comparison.played
    assert [tally.name for tally in comparison.tallies] == ["toxic-0.5", "toxic-0.5+likely"]
    assert comparison.undecided == []
    assert (comparison.main.fixed, comparison.main.remaining, comparison.main.new) == (1, 1, 1)
    assert "8 openings" in comparison.headline
    assert numbers(comparison.headline)[:4] == [8, 2, 0.5, 2]
    text = " ".join(shown(comparison, width).split())
    assert "we went to the lake 4" in text
    assert "sentence" not in text
    assert "utter fool" not in text
    assert "silly goose" not in text
    assert "0.90" in text
    assert "utter" in shown(comparison, width, unmask=True)


def test_how_an_adversary_learnt_is_a_difference_and_a_white_box_budget_is_none(tmp_path: Path) -> None:
    before, after = (
        play(tmp_path / name, turns=n, max_candidates=n, control=n == 2) for name, n in (("a", 2), ("b", 3))
    )
    comparison = compare_runs(before, after)
    assert [(one.name, one.before, one.after, one.unfair) for one in comparison.differences] == [
        ("turns", "2", "3", True)
    ]
    assert "turns (2 before, 3 after)" in comparison.warnings[0]
