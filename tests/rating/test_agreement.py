"""Alpha against a published table and by counting pairs."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from backtalk.rating.result import agreeing, krippendorff_alpha

# Krippendorff (2011), Computing Krippendorff's alpha-reliability, section C: four observers, twelve units.
UNITS = ["111", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "555", "11", "3"]


def test_alpha_of_the_published_example() -> None:
    assert krippendorff_alpha(UNITS) == pytest.approx(0.743, abs=5e-4)


def alpha_by_counting(units: list[str]) -> float:
    """Observed: ordered pairs within units, each unit's pairs weighing 1 / (m - 1); expected: all pairs."""
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]
    n = len(values)
    weighted = sum(sum(a != b for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units) / n
    expected = sum(a != b for a, b in permutations(values, 2)) / (n * (n - 1))
    return 1 - weighted / expected


@pytest.mark.parametrize("units", [UNITS, ["12", "11", "21", "2"], ["123", "11", "233", "3", "21"]])
def test_alpha_equals_counting_all_pairs(units: list[str]) -> None:
    assert krippendorff_alpha(units) == pytest.approx(alpha_by_counting(units))


def test_alpha_where_nothing_can_be_said() -> None:
    assert krippendorff_alpha([]) is None
    assert krippendorff_alpha(["1", "2"]) is None, "no unit has two answers"
    assert krippendorff_alpha(["11", "111"]) is None, "only one answer was ever given"
    assert krippendorff_alpha(["11", "22"]) == 1


def test_two_raters_agree_in_part() -> None:
    answers = ["yy"] * 20 + ["yn"] * 5 + ["ny"] * 10 + ["nn"] * 15
    assert agreeing(answers) == (35, 50)


def test_missing_answers_change_what_is_compared() -> None:
    assert agreeing(["123", "1", "", "22"]) == (1, 4)
    for units in product(["1", "2"], repeat=2):
        assert agreeing(list(units)) == (0, 0)
