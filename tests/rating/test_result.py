"""What answers come to, worked out by hand on pairs whose sides are known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from backtalk.rating.folder import Answer, Key, Ratings, blind
from backtalk.rating.result import print_result, tally, verdict_of
from backtalk.stats import Rate, wilson

NAMES = [f"x{i}" for i in range(8)]
BLINDED = blind(NAMES, ["one"] * 8, ["two"] * 8, 1)
IDS = [pair.id for pair in BLINDED.pairs]


def ratings(identical: int = 0, first: str = "before") -> Ratings:
    same = [{"input": "same", "reply": "reply"}] * identical
    key = Key({"name": first}, {"name": "after"}, "made up", {}, BLINDED.swapped, same)
    return Ratings(Path("here"), BLINDED.pairs, key)


def says(rater: str, *wanted: str) -> list[Answer]:
    """Answers by who is preferred: 1 (the first), 2, tie, skip, or - for none; sides follow the blinds."""
    answers = []
    for pair, choice in zip(IDS, wanted, strict=False):
        if choice in ("1", "2") and pair in BLINDED.swapped:
            choice = "2" if choice == "1" else "1"
        if choice != "-":
            answers.append(Answer(pair, rater, choice))
    return answers


def shares(result: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {verdict: (rate["hits"], rate["n"]) for verdict, rate in result["shares"].items()}


def test_one_rater_is_counted_behind_the_blinds() -> None:
    result = tally(ratings(), says("anna", "1", "2", "2", "2", "tie", "2", "2", "skip"))
    assert shares(result) == {"tie": (1, 7), "first": (1, 7), "second": (5, 7)}
    assert result["raters"] == {"anna": {"tie": 1, "first": 1, "second": 5, "skip": 1}}
    assert result["shares"]["second"]["ci95"] == list(wilson(5, 7))
    # One of six heads, or fewer, or as many tails: 2 * (1 + 6) / 64.
    assert result["sign_test_p"] == pytest.approx(14 / 64)
    assert result["second_without_ties"] == Rate.of(5, 6).as_dict()
    assert (result["judged"], result["unseen"], result["asked"]) == (7, 0, 8)
    assert result["agreement"]["pairs"] == 0


def test_a_rater_who_always_says_1_favours_neither() -> None:
    result = tally(ratings(), [Answer(pair, "anna", "1") for pair in IDS])
    assert shares(result) == {"tie": (0, 8), "first": (4, 8), "second": (4, 8)}
    assert result["chosen_side"] == {"1": 8, "2": 0}
    assert result["sign_test_p"] == 1.0


def test_identical_replies_are_ties_once_every_other_pair_was_seen() -> None:
    part = tally(ratings(identical=12), says("anna", "2", "2", "2"))
    assert shares(part)["tie"] == (0, 3), "12 ties beside 3 of 8 answers would be out of proportion"
    assert (part["unseen"], part["identical"]) == (5, {"pairs": 12, "counted_as_ties": False})
    whole = tally(ratings(identical=12), says("anna", "2", "2", "2", "1", "1", "tie", "2", "skip"))
    assert shares(whole) == {"tie": (13, 19), "first": (2, 19), "second": (4, 19)}
    assert whole["identical"] == {"pairs": 12, "counted_as_ties": True}


def test_two_raters_worked_out_by_hand() -> None:
    """Six pairs have both: 4 alike, so 2 * 2 unequal ordered pairs. Values: first 6, second 4, tie 2; n = 12,
    144 - 36 - 16 - 4 = 88."""
    anna = says("anna", "1", "1", "1", "2", "2", "tie", "1", "-")
    bob = says("bob", "1", "1", "tie", "2", "2", "1", "-", "2")
    result = tally(ratings(), [*anna, *bob])
    assert result["agreement"]["krippendorff_alpha"] == pytest.approx(1 - 11 * 4 / 88)
    assert (result["agreement"]["same"], result["agreement"]["compared"]) == (4, 6)
    # Verdicts: first, first, none leads, second, second, none leads, then one rater's own: first, second.
    assert shares(result) == {"tie": (2, 8), "first": (3, 8), "second": (3, 8)}


def test_three_raters_with_gaps_have_an_alpha() -> None:
    answers = [
        *says("anna", "1", "2", "tie"),
        *says("bob", "1", "2", "1"),
        *says("cy", "1", "-", "skip", "2"),
    ]
    result = tally(ratings(), answers)
    # Units 111, 22, t1: observed 2 unequal ordered pairs; values 1,1,1,2,2,t,1: n = 7, 49 - 16 - 4 - 1 = 28.
    assert result["agreement"]["krippendorff_alpha"] == pytest.approx(1 - 6 * 2 / 28)
    assert (result["agreement"]["same"], result["agreement"]["compared"]) == (4, 5)
    assert shares(result) == {"tie": (1, 4), "first": (1, 4), "second": (2, 4)}


@pytest.mark.parametrize(
    ("choices", "verdict"),
    [
        (["first"], "first"),
        (["first", "second"], "tie"),
        (["first", "tie"], "tie"),
        (["first", "first", "second"], "first"),
        (["tie", "second", "tie"], "tie"),
        (["second", "second", "tie", "tie", "first"], "tie"),
        (["second", "second", "tie", "first"], "second"),
    ],
)
def test_a_verdict_is_what_most_say(choices: list[str], verdict: str) -> None:
    assert verdict_of(choices) == verdict
    assert verdict_of(choices[::-1]) == verdict


def test_no_answers_claim_nothing() -> None:
    result = tally(ratings(identical=3), [])
    assert shares(result) == {"tie": (0, 0), "first": (0, 0), "second": (0, 0)}
    assert result["sign_test_p"] == 1.0
    assert result["unseen"] == 8


def printed(result: dict[str, Any], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_result(result, console)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def test_the_table_fits_44_columns_and_says_everything() -> None:
    answers = [
        *says("a rater with quite a long name", "1", "2", "2", "2", "tie", "2", "2", "2"),
        *says("b", "1", "2"),
    ]
    text = printed(tally(ratings(identical=12), answers), 44)
    assert max(map(len, text.splitlines())) <= 44
    flat = " ".join(text.split())
    for said in (
        "first: before second: after",
        "tie 13 65% 43 to 82%",
        "first 1 5% 1 to 24%",
        "second 6 30% 15 to 52%",
        "8 of 8 pairs judged; 12 more",
        "6 of 7 (86%",
        "p = 0.125: no clear",
        "2 of 2 times (100%); Krippendorff's alpha 1.00",
    ):
        assert said in flat
    unfinished = printed(tally(ratings(identical=12), says("b", "1")), 44)
    assert "will count as ties" in " ".join(unfinished.split())
    assert "none judged" in printed(tally(ratings(), []), 44)


def test_names_cannot_steer_the_terminal() -> None:
    wild = ratings(first="a\x1b[2J[bold]")
    text = printed(tally(wild, says("anna", "1")), 80)
    assert "\x1b[2J" not in text
    assert "a[2J[bold]" in text
