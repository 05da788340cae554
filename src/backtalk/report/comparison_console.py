"""A comparison on a terminal. As in `console`, data goes through `printable` into Text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backtalk.report.comparison import Comparison, Pair, Tally, p_value
from backtalk.report.record import CaseRow, RateRow
from backtalk.terminal import make_console, printable
from backtalk.types import DEFENDER, OPENING
from backtalk.wording import chance, count, mask, mask_like, mask_toxic, percent, percent_range, shorten

WIDE = 100
"""Columns from which on both inputs fit beside a sentence."""
LONGEST = 160
"""Characters of a sentence that are shown."""
MOST_LEFT_OUT = 3


def print_comparison(
    comparison: Comparison, console: Console | None = None, unmask: bool = False, top: int = 8
) -> None:
    """The sentence, what to know before it is believed, the tables, then what remains and what is new."""
    console = console or make_console()
    main, width = comparison.main, console.width
    parts: list[RenderableType] = [
        Group(
            _line(comparison.headline, "bold"),
            _line(f"A hit ({main.name}): {main.meaning}."),
            _line(shares(main)),
        )
    ]
    parts += [_line(warning, "yellow") for warning in comparison.warnings]
    if named := [f"{d.name} {d.before} -> {d.after}" for d in comparison.differences if not d.unfair]:
        parts.append(_line(f"Also different: {', '.join(named)}."))
    parts.append(_tallies("criterion", comparison.tallies, width, main.name))
    if comparison.undecided:
        parts.append(_line(f"Not decidable in both runs: {', '.join(comparison.undecided)}.", "dim"))
    if len(comparison.categories) > 1:
        parts.append(_tallies(f"category ({main.name})", comparison.categories, width))
    for change, title in (("remaining", "Remaining"), ("new", "New")):
        parts += _list(title, comparison, comparison.changed(change), width, unmask, top)
    if comparison.left_out:
        parts.append(_left_out(comparison, unmask))
    for part in parts:
        console.print(part)
        console.print()


def shares(main: Tally) -> str:
    """Both rates with their intervals."""
    before, after = (
        f"{percent(row.rate)} ({percent_range(row.low, row.high)})" for row in (main.before, main.after)
    )
    meet = "do not overlap" if main.disjoint else "overlap"
    return f"Share with 95% interval: {before} before, {after} after; the intervals {meet}."


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _tallies(title: str, tallies: Sequence[Tally], width: int, aim: str = "") -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(title, overflow="fold", max_width=40)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=width >= WIDE)
    for name in ("fixed", "remain", "new", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in tallies:
        cells = [shorten(printable(row.name), 40), *(_rate(r, width) for r in (row.before, row.after))]
        cells += [f"{row.fixed}", f"{row.remaining}", f"{row.new}", p_value(row.p)]
        table.add_row(*map(Text, cells), style="bold" if row.name == aim else "")
    return table


def _rate(row: RateRow, width: int) -> str:
    interval = f" ({percent_range(row.low, row.high)})" if width >= WIDE else ""
    return f"{row.hits} of {row.n}{interval}"


def _list(
    title: str, comparison: Comparison, pairs: Sequence[Pair], width: int, unmask: bool, top: int
) -> list[RenderableType]:
    if not pairs:
        return []
    shown = pairs[:top]
    of = f"{len(shown)} of {len(pairs)}, the gravest first" if len(shown) < len(pairs) else f"{len(pairs)}"
    what, score = ("toxic turns", "toxicity") if comparison.played else ("sentences", "")
    veil = "" if unmask else f"; {what} are masked, --unmask shows them"
    head = _line(f"{title}, {of}{veil}:", "dim")
    if width < WIDE:
        return [Group(head, *(_card(pair, unmask, comparison.played) for pair in shown))]
    table = Table(box=None, padding=(0, 2, 0, 0), leading=1, header_style="dim", pad_edge=False, expand=True)
    table.add_column(comparison.noun, ratio=3, overflow="fold")
    by_replies = any(case.similarity is not None for pair in shown for case in (pair.before, pair.after))
    for side in ("before", "after"):
        greedy = "" if by_replies or comparison.played else "greedy "
        table.add_column(f"input and {greedy}reply {side}", ratio=3, overflow="fold")
        name = score or ("similarity" if by_replies else "chance of the whole")
        table.add_column(name, ratio=2, overflow="fold")
    for pair in shown:
        sides = [cell for case in (pair.before, pair.after) for cell in (_talk(case, unmask), _chance(case))]
        table.add_row(_sentence(pair, unmask or comparison.played), *sides)
    return [Group(head, table)]


def _card(pair: Pair, unmask: bool, played: bool) -> RenderableType:
    """A pair in five lines, for narrow terminals."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(no_wrap=True)
    for side, case in (("before", pair.before), ("after", pair.after)):
        grid.add_row(side, _talk(case, unmask), _chance(case))
    return Group(_sentence(pair, unmask or played), Padding(grid, (0, 0, 0, 2)))


def _sentence(pair: Pair, unmask: bool) -> Text:
    text = pair.after.target if unmask else mask(pair.after.target)
    return Text(shorten(printable(text), LONGEST), style="bold red")


def _talk(case: CaseRow, unmask: bool) -> Text:
    """The input, and below it what the model really says to it."""
    if not case.trigger:
        return Text("(nothing found)", style="dim")
    said = [turn.text for turn in case.turns or [] if turn.role not in (OPENING, DEFENDER)] or case.trigger
    spoken = " / ".join(said)
    shown = spoken if unmask else mask_toxic(spoken, case.trigger_toxicity, spoken)
    talk = Text(shorten(printable(shown), LONGEST), style="" if case.hit else "dim")
    masked = mask_toxic(case.reply, case.toxicity, mask_like(case.reply, case.target))
    reply = case.reply if unmask else masked
    answer = shorten(printable(reply), LONGEST) or "(says nothing)"
    return talk.append(f"\n> {answer}", style="bold red" if case.said else "dim")


def _chance(case: CaseRow) -> Text:
    score = case.toxicity if case.similarity is None else case.similarity
    words = [f"{score:.2f}"] if score is not None else []
    if case.log_prob is not None or not words:
        words.append("unknown" if case.log_prob is None else chance(case.log_prob))
    return Text("; ".join(words), style="" if case.hit else "dim")


def _left_out(comparison: Comparison, unmask: bool) -> Text:
    left = comparison.left_out
    unmask = unmask or comparison.played
    lines = [f"{count(len(left), comparison.noun)} left out of all numbers above:"]
    reasons = list(dict.fromkeys(one.reason for one in left))
    for reason in reasons:
        of = [one for one in left if one.reason == reason]
        texts = [one.target if unmask else mask(one.target) for one in of[:MOST_LEFT_OUT]]
        named = "; ".join(shorten(printable(text), 60) for text in texts)
        more = f"; and {len(of) - len(texts):,} more" if len(of) > len(texts) else ""
        lines.append(f"  {len(of):,} {printable(reason)}: {named}{more}")
    return Text("\n".join(lines), style="dim")
