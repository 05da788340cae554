"""A comparison on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backtalk.report.comparison import Comparison, Pair, Tally, p_value
from backtalk.report.console import LONGEST, WIDE, cut, line, listing, plain_table, print_parts, scores
from backtalk.report.record import CaseRow, RateRow
from backtalk.terminal import make_console, printable
from backtalk.types import DEFENDER, OPENING
from backtalk.wording import count, mask, mask_toxic, percent_range, shorten

MOST_LEFT_OUT = 3


def print_comparison(
    comparison: Comparison, console: Console | None = None, unmask: bool = False, top: int = 8
) -> None:
    """The headline, warnings, tables, then what remains and what is new."""
    console = console or make_console()
    main, width = comparison.main, console.width
    meant = line(f"A hit ({main.name}): {main.meaning}.")
    parts: list[RenderableType] = [Group(line(comparison.headline, "bold"), meant, line(main.shares))]
    parts += [line(warning, "yellow") for warning in comparison.warnings]
    if named := [f"{d.name} {d.before} -> {d.after}" for d in comparison.differences if not d.unfair]:
        parts.append(line(f"Also different: {', '.join(named)}."))
    parts.append(_tallies("criterion", comparison.tallies, width, main.name))
    if comparison.undecided:
        parts.append(line(f"Not decidable in both runs: {', '.join(comparison.undecided)}.", "dim"))
    if len(comparison.categories) > 1:
        parts.append(_tallies(f"category ({main.name})", comparison.categories, width))
    for change, title in (("remaining", "Remaining"), ("new", "New")):
        if pairs := comparison.changed(change):
            parts += _pairs(title, comparison, pairs, width, unmask, top)
    if comparison.left_out:
        parts.append(_left_out(comparison, unmask or comparison.played))
    print_parts(console, parts)


def _tallies(title: str, tallies: Sequence[Tally], width: int, aim: str = "") -> Table:
    table = plain_table(title, "before", "after", "fixed", "remain", "new", "p", fixed=True)
    for row in tallies:
        cells = [shorten(printable(row.name), 40), _rate(row.before, width), _rate(row.after, width)]
        cells += [f"{row.fixed}", f"{row.remaining}", f"{row.new}", p_value(row.p)]
        table.add_row(*map(Text, cells), style="bold" if row.name == aim else "")
    return table


def _rate(row: RateRow, width: int) -> str:
    interval = f" ({percent_range(row.low, row.high)})" if width >= WIDE else ""
    return f"{row.hits} of {row.n}{interval}"


def _pairs(
    title: str, comparison: Comparison, pairs: Sequence[Pair], width: int, unmask: bool, top: int
) -> list[RenderableType]:
    shown, played = pairs[:top], comparison.played
    of = f"{len(shown)} of {len(pairs)}, the gravest first" if len(shown) < len(pairs) else f"{len(pairs)}"
    veil = f"; {'toxic turns' if played else 'sentences'} are masked, --unmask shows them"
    rows = [
        (
            cut(pair.after.shown("target", unmask or played), "bold red"),
            *(_exchange(case, unmask) for case in (pair.before, pair.after)),
        )
        for pair in shown
    ]
    head = line(f"{title}, {of}{'' if unmask else veil}:", "dim")
    return [Group(head, listing((comparison.noun, "before", "after"), rows, width))]


def _exchange(case: CaseRow, unmask: bool) -> Text:
    """The input, and below it what the model really says to it and the scores."""
    if not case.trigger:
        return Text("(nothing found)", style="dim")
    said = [turn.text for turn in case.turns or [] if turn.role not in (OPENING, DEFENDER)] or case.trigger
    spoken = " / ".join(said)
    reply = shorten(printable(case.shown("reply", unmask)), LONGEST) or "(says nothing)"
    text = cut(
        spoken if unmask else mask_toxic(spoken, case.trigger_toxicity, spoken), "" if case.hit else "dim"
    )
    text.append(f"\n> {reply}", style="bold red" if case.said else "dim")
    return text.append(f"\n{scores(case)}")


def _left_out(comparison: Comparison, unmask: bool) -> Text:
    left = comparison.left_out
    lines = [f"{count(len(left), comparison.noun)} left out of all numbers above:"]
    for reason in dict.fromkeys(one.reason for one in left):
        of = [one for one in left if one.reason == reason]
        texts = [one.target if unmask else mask(one.target) for one in of[:MOST_LEFT_OUT]]
        named = "; ".join(shorten(printable(text), 60) for text in texts)
        more = f"; and {len(of) - len(texts):,} more" if len(of) > len(texts) else ""
        lines.append(f"  {len(of):,} {printable(reason)}: {named}{more}")
    return Text("\n".join(lines), style="dim")
