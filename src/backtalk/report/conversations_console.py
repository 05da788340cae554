"""Played conversations on a terminal: the paper's table by turn, topics, and the worst conversations.

Data goes through `printable` into Text, as in `console`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backtalk.report.record import CaseRow, Conversation, Conversations, Spread, TurnRow
from backtalk.terminal import printable
from backtalk.wording import chance, count, mask_toxic, percent, shorten

LONGEST = 160
"""Characters of a turn that are shown."""
TOP = 5
"""Conversations that are shown."""


def conversation_parts(cases: Sequence[CaseRow], part: Conversations, unmask: bool) -> list[RenderableType]:
    """The table by turn, topics and the first conversations."""
    parts: list[RenderableType] = [_turns(part)]
    if len(part.players) > 1:
        parts.append(_players(part))
    if part.topics and part.by_turn:
        parts.append(_topics(part))
    if part.words:
        words = ", ".join(printable(use.word if unmask else use.shown()) for use in part.words[:12])
        parts.append(Text(f"Words that the untuned model uses less: {words}", style="dim"))
    return parts + _top([case for case in cases if case.conversation], unmask)


def spread_words(spread: Spread | None) -> str:
    """ "0.12 ± 0.20, 8%": mean, standard deviation, share above 0.5."""
    if spread is None or spread.mean is None:
        return "-"
    words = f"{spread.mean:.3f} ± {spread.std:.3f}"
    return words if spread.above is None else f"{words}, {percent(spread.above)}"


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for place, title in enumerate(titles):
        table.add_column(title, justify="right" if place else "left", overflow="fold")
    return table


def _turns(part: Conversations) -> Table:
    """Mean ± standard deviation and the share above 0.5, by turn; other runs below."""
    second = any(row.second is not None for row in part.by_turn)
    titles = ["turn", "defender", "whole turn", "prompt", "log-ppl"]
    table = _table(*titles, *(["second scorer"] if second else []))
    groups = {"": part.by_turn, **part.beside}
    for name, rows in groups.items():
        for row in rows:
            table.add_row(*_turn_cells(name, row, second), style="" if not name else "dim")
    return table


def _turn_cells(name: str, row: TurnRow, second: bool) -> list[Text]:
    turn = "all" if row.turn == 0 else str(row.turn)
    cells = [f"{name} {turn}".strip()]
    cells += [spread_words(one) for one in (row.defender, row.pair, row.adversary, row.log_ppl)]
    cells += [spread_words(row.second)] if second else []
    return [Text(printable(cell)) for cell in cells]


def _players(part: Conversations) -> Table:
    table = _table("attacker", "log-ppl", "toxicity", "different prompts", "circles", "")
    for player in part.players:
        front = "on the front" if player.on_front else ""
        numbers = f"{player.log_ppl:.3f}", f"{player.toxicity:.3f}"
        shares = percent(player.different), percent(player.loops)
        cells = (shorten(player.name, 28), *numbers, *shares, front)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _topics(part: Conversations) -> Table:
    turns = [row.turn for row in part.by_turn if row.turn]
    table = _table("conversations with", *(f"by turn {turn}" for turn in turns))
    for use in part.topics:
        cells = [
            percent(share) + (f" (untuned {percent(use.untuned[place])})" if use.untuned else "")
            for place, share in enumerate(use.shares)
        ]
        table.add_row(*map(Text, [use.topic, *cells]))
    return table


def _top(cases: Sequence[CaseRow], unmask: bool) -> list[RenderableType]:
    hits = [case for case in cases if case.hit]
    shown = (hits or cases)[:TOP]
    if not shown:
        return []
    title = (
        f"{len(shown)} of {count(len(hits), 'hit')}, the likeliest and worst first"
        if hits
        else "No hit; the likeliest and worst first"
    )
    veil = "" if unmask else "; toxic turns are masked, --unmask shows them"
    told = [_conversation(case.conversation, case.hit, unmask) for case in shown if case.conversation]
    return [Text(f"{title}{veil}:", style="dim"), *told]


def _conversation(played: Conversation, hit: bool, unmask: bool) -> RenderableType:
    exchange = played.exchanges[played.worst]
    head = Text(f"turn {played.worst + 1}: toxicity {exchange.toxicity:.2f}", style="bold red" * hit)
    head.append(f"  the prompts have a chance of {chance(played.log_prob)}", style="not bold default")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for text in played.opening:
        grid.add_row("opening", Text(shorten(printable(" ".join(text.split())), LONGEST)))
    for one in played.exchanges[: played.worst + 1]:
        for who, text, toxicity in (
            ("adversary", one.adversary, one.adversary_toxicity),
            ("defender", one.defender, one.toxicity),
        ):
            words = " ".join(text.split())
            shown = words if unmask else mask_toxic(words, toxicity, words)
            grid.add_row(who, Text(shorten(printable(shown), LONGEST) or "(says nothing)"))
    return Group(head, Padding(grid, (0, 0, 0, 2)))
