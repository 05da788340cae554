"""How far raters agree beyond chance: Cohen's kappa (1960) for two, Krippendorff's alpha for any number, with
answers missing. Both are 1 for perfect agreement and 0 for what chance alone gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations


def agreeing(units: Sequence[Sequence[str]]) -> tuple[int, int]:
    """(equal, all) pairs of answers to the same unit; a unit is the answers that one pair got."""
    compared = [a == b for unit in units for a, b in combinations(unit, 2)]
    return sum(compared), len(compared)


def cohen_kappa(answers: Sequence[tuple[str, str]]) -> float | None:
    """(po - pe) / (1 - pe) over what both raters answered; None where chance alone gives full agreement."""
    n = len(answers)
    if not n:
        return None
    observed = sum(a == b for a, b in answers) / n
    one, two = Counter(a for a, _ in answers), Counter(b for _, b in answers)
    expected = sum(one[choice] * two[choice] for choice in one) / n**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(units: Sequence[Sequence[str]]) -> float | None:
    """1 - D_o / D_e for choices without an order; units with one answer can't be compared and drop out."""
    units = [unit for unit in units if len(unit) > 1]
    totals = Counter(choice for unit in units for choice in unit)
    n = totals.total()
    # Ordered pairs of unequal answers of a unit, each unit weighing as much as it has answers.
    observed = sum(
        (len(unit) ** 2 - sum(count**2 for count in Counter(unit).values())) / (len(unit) - 1)
        for unit in units
    )
    expected = n**2 - sum(count**2 for count in totals.values())
    return None if expected == 0 else 1 - (n - 1) * observed / expected
