"""The result of a rating: shares of tie, first and second as in Table 6, a sign test, and raters' agreement.

A pair counts once however many raters judged it, so that intervals hold: its verdict is the choice that most
raters made, and a tie if no choice leads. Pairs of identical replies are ties too, but only after all other
pairs were seen: before that they would outweigh them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from rich.console import Console

from backtalk.errors import InputError
from backtalk.rating.folder import Answer, Key, Ratings, standing
from backtalk.report.console import plain_table
from backtalk.stats import Rate, mcnemar_exact
from backtalk.terminal import printable
from backtalk.wording import count, percent, percent_range

VERDICTS = ("tie", "first", "second")


def tally(ratings: Ratings, answers: Iterable[Answer]) -> dict[str, Any]:
    """The record of result.json: the answers counted by model, which needs the key."""
    key = ratings.key
    if not isinstance(key, Key):
        raise InputError(f"{ratings.folder} has no key; send {ratings.answers} back to who made the pairs")
    given = list(standing(answers).values())
    swapped = set(key.swapped)
    units: dict[str, dict[str, str]] = {}  # choices by pair and rater
    raters: dict[str, dict[str, int]] = {}
    for answer in given:
        choice = answer.choice
        if choice in ("1", "2"):
            choice = "second" if (choice == "2") != (answer.pair in swapped) else "first"
        raters.setdefault(answer.rater, dict.fromkeys((*VERDICTS, "skip"), 0))[choice] += 1
        if choice != "skip":
            units.setdefault(answer.pair, {})[answer.rater] = choice
    verdicts = Counter(verdict_of(list(unit.values())) for unit in units.values())
    unseen = len({pair.id for pair in ratings.pairs} - {answer.pair for answer in given})
    judged = verdicts.total()
    if unseen == 0:
        verdicts["tie"] += len(key.identical)
    first, second, n = verdicts["first"], verdicts["second"], verdicts.total()
    return {
        "first": key.first["name"],
        "second": key.second["name"],
        "asked": len(ratings.pairs),
        "judged": judged,
        "unseen": unseen,
        "identical": {"pairs": len(key.identical), "counted_as_ties": unseen == 0},
        "shares": {verdict: Rate.of(verdicts[verdict], n).as_dict() for verdict in VERDICTS},
        "second_without_ties": Rate.of(second, first + second).as_dict(),
        # McNemar's exact test is the two-sided sign test on the pairs that one of the two wins.
        "sign_test_p": mcnemar_exact(first, second),
        "chosen_side": {side: sum(answer.choice == side for answer in given) for side in ("1", "2")},
        "raters": dict(sorted(raters.items())),
        "agreement": agreement_of([unit for unit in units.values() if len(unit) > 1]),
        "inputs": key.source,
        "seed": key.settings.get("seed"),
    }


def verdict_of(choices: Sequence[str]) -> str:
    """The choice that most raters made; a tie if no choice leads."""
    (best, votes), *rest = Counter(choices).most_common()
    return "tie" if rest and rest[0][1] == votes else best


def agreement_of(shared: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Over pairs that at least two raters judged."""
    choices = [list(unit.values()) for unit in shared]
    same, compared = agreeing(choices)
    return {
        "raters": sorted({rater for unit in shared for rater in unit}),
        "pairs": len(shared),
        "same": same,
        "compared": compared,
        "krippendorff_alpha": krippendorff_alpha(choices),
    }


def agreeing(units: Sequence[Sequence[str]]) -> tuple[int, int]:
    """(equal, all) pairs of answers in the same unit."""
    compared = [a == b for unit in units for a, b in combinations(unit, 2)]
    return sum(compared), len(compared)


def krippendorff_alpha(units: Sequence[Sequence[str]]) -> float | None:
    """1 - D_o / D_e for nominal choices, of any number of raters and with answers missing. A unit holds the
    answers to one pair; units with one answer can't be compared and drop out."""
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


def print_result(result: dict[str, Any], console: Console) -> None:
    """The record of `tally` in at least 44 columns."""
    console.print(f"first:  {printable(result['first'])}", style="bold")
    console.print(f"second: {printable(result['second'])}", style="bold")
    console.print()
    table = plain_table("", "pairs", "share", "95% interval", fixed=True)
    for verdict, rate in result["shares"].items():
        known = (percent(rate["rate"]), percent_range(*rate["ci95"])) if rate["n"] else ("-", "none judged")
        table.add_row(verdict, str(rate["hits"]), *known)
    console.print(table)
    console.print()
    console.print(_pairs_line(result))
    console.print(_test_line(result["second_without_ties"], result["sign_test_p"]))
    if result["raters"]:
        console.print()
        raters = plain_table("rater", *VERDICTS, "skipped", fixed=True)
        for name, own in result["raters"].items():
            raters.add_row(printable(name), *(str(own[choice]) for choice in (*VERDICTS, "skip")))
        console.print(raters)
        sides = result["chosen_side"]
        console.print(f"Shown as 1 and preferred: {sides['1']}; shown as 2: {sides['2']}.")
    console.print(agreement_line(result["agreement"]))


def _pairs_line(result: dict[str, Any]) -> str:
    line = f"{result['judged']} of {count(result['asked'], 'pair')} judged"
    if result["unseen"]:
        line += f", {result['unseen']} not seen by anyone yet"
    if identical := result["identical"]["pairs"]:
        counted = result["identical"]["counted_as_ties"]
        when = "count as ties" if counted else "will count as ties once all are seen"
        line += f"; {identical} more with identical replies {when}"
    return line + "."


def _test_line(preferred: dict[str, Any], p: float) -> str:
    if not preferred["n"]:
        return "No pair was won by either."
    clear = "a clear difference" if p < 0.05 else "no clear difference"
    share = f"{percent(preferred['rate'])}, 95%: {percent_range(*preferred['ci95'])}"
    won = f"{preferred['hits']} of {preferred['n']} ({share})"
    return f"Without ties the second wins {won}; sign test p = {p:.3g}: {clear}."


def agreement_line(agreement: Mapping[str, Any], what: str = "pair") -> str:
    if not agreement["pairs"]:
        return f"Agreement: no {what} was judged by two raters."
    same, compared = agreement["same"], agreement["compared"]
    alpha = agreement["krippendorff_alpha"]
    number = "undefined: there was only one answer" if alpha is None else f"{alpha:.2f}"
    share = f"{same} of {compared} times ({percent(same / compared)})"
    raters = f"{len(agreement['raters'])} raters, by twos, gave the same answer {share}"
    return f"Agreement: {raters}; Krippendorff's alpha {number}."
