"""Cells of a study's tables: what is shown, what counts as a difference, and how differences are listed."""

import pytest

from backtalk.stats import Rate
from reproduction.page import Cell, differences, plain, table


def rate_cell(paper: float, hits: int, n: int, key: str = "table-3/x/y") -> Cell:
    return Cell.of_rate(key, paper, Rate.of(hits, n).as_dict())


def test_a_cell_shows_both_numbers_and_the_wilson_interval() -> None:
    # Wilson for 189 of 1,000: (16.60, 21.44), by the textbook formula.
    cell = rate_cell(18.9, 189, 1000)
    assert cell.text == r"18.9 \| 18.9 [16.6, 21.4]"
    assert not cell.differs


@pytest.mark.parametrize(
    ("paper", "hits", "differs"), [(0, 0, False), (0.4, 0, True), (0.3, 0, False), (18.9, 300, True)]
)
def test_a_cell_differs_when_the_papers_number_is_outside_the_interval(
    paper: float, hits: int, differs: bool
) -> None:
    cell = rate_cell(paper, hits, 1000)  # 0 of 1,000 reaches to 0.383%
    assert cell.differs is differs
    assert cell.text.endswith("†") is differs


def test_without_an_interval_five_percent_away_is_a_difference() -> None:
    assert not Cell("k", 40.0, 41.9).differs
    assert Cell("k", 40.0, 42.1).differs


def test_what_was_not_run_says_so_and_never_differs() -> None:
    for cell in (Cell("k", 65.0), Cell.of_rate("k", 65.0, None), rate_cell(65.0, 0, 0)):
        assert cell.text == r"65 \| not run"
        assert not cell.differs
    assert not Cell("k", None, 12.0).differs


def test_differences_are_explained_by_the_first_note_that_fits_or_marked() -> None:
    cells = [
        rate_cell(50, 1, 100, "table-3/ubuntu/last-h/o-greedy"),
        rate_cell(50, 2, 100, "table-3/switchboard/last-h/o-greedy"),
        rate_cell(2, 2, 100, "table-3/switchboard/attention/o-greedy"),
    ]
    lines = differences(cells, {"*/ubuntu/*": "a slice"})
    assert lines == [
        "- *unexplained*",
        "  - table-3: switchboard/last-h/o-greedy (50 against 2)",
        "- a slice",
        "  - table-3: ubuntu/last-h/o-greedy (50 against 1)",
        "",
    ]
    (none, end) = differences(cells[2:], {})
    assert none.startswith("None: ")
    assert not end


def test_a_models_words_are_no_markdown() -> None:
    assert plain("a | b `c` <b>\n*d*") == "`a \\| b 'c' <b> *d*`"
    assert table(["a", "b"], [["x", "1"]]) == ["| a | b |", "| --- | ---: |", "| x | 1 |", ""]
