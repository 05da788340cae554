"""The result on a terminal, down to 44 columns."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from backtalk.rating.result import VERDICTS, Result
from backtalk.terminal import printable
from backtalk.wording import count, percent, percent_range


def print_result(result: Result, console: Console) -> None:
    console.print(f"first:  {printable(result.first)}", style="bold")
    console.print(f"second: {printable(result.second)}", style="bold")
    console.print()
    table = _table("", "pairs", "share", "95% interval")
    for verdict in VERDICTS:
        rate = result.shares[verdict]
        known = (percent(rate.rate), percent_range(rate.low, rate.high)) if rate.n else ("-", "none judged")
        table.add_row(verdict, str(rate.hits), *known)
    console.print(table)
    console.print()
    console.print(_pairs(result))
    console.print(_test(result))
    if result.raters:
        console.print()
        raters = _table("rater", *VERDICTS, "skipped")
        for name, own in result.raters.items():
            raters.add_row(printable(name), *(str(own[choice]) for choice in (*VERDICTS, "skip")))
        console.print(raters)
        ones, twos = result.sides
        console.print(f"Shown as 1 and preferred: {ones}; shown as 2: {twos}.")
    console.print(_agreement(result.agreement))


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in columns:
        table.add_column(name, justify="left" if "interval" in name else "right", no_wrap=True)
    return table


def _pairs(result: Result) -> str:
    said = f"{result.judged} of {count(result.asked, 'pair')} judged"
    if result.unseen:
        said += f", {result.unseen} not seen by anyone yet"
    if result.identical and result.counted:
        said += f"; {result.identical} more with identical replies count as ties"
    elif result.identical:
        said += f"; {result.identical} more with identical replies will count as ties once all are seen"
    return said + "."


def _test(result: Result) -> str:
    preferred = result.preferred
    if not preferred.n:
        return "No pair was won by either."
    clear = "a clear difference" if result.sign_test < 0.05 else "no clear difference"
    return (
        f"Without ties the second wins {preferred.hits} of {preferred.n} ({percent(preferred.rate)}, 95%: "
        f"{percent_range(preferred.low, preferred.high)}); sign test p = {result.sign_test:.3g}: {clear}."
    )


def _agreement(agreement: dict[str, Any]) -> str:
    if not agreement["pairs"]:
        return "Agreement: no pair was judged by two raters."
    same, compared = agreement["same"], agreement["compared"]
    if "cohen_kappa" in agreement:
        names = " and ".join(printable(name) for name in agreement["raters"])
        measure = f"Cohen's kappa {_number(agreement['cohen_kappa'])}"
    else:
        names = f"{len(agreement['raters'])} raters, by twos,"
        measure = f"Krippendorff's alpha {_number(agreement['krippendorff_alpha'])}"
    share = f"{same} of {compared} times ({percent(same / compared)})"
    return f"Agreement: {names} gave the same answer {share}; {measure}."


def _number(value: float | None) -> str:
    return "undefined: there was only one answer" if value is None else f"{value:.2f}"
