"""A hardening on a terminal, from its summary.json. Data goes through `printable` into Text, as in
`console`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backtalk.report.comparison import Comparison
from backtalk.report.comparison_console import print_comparison
from backtalk.report.console import cut, line, plain_table
from backtalk.report.cost import CostRecord
from backtalk.report.hardening_record import HardeningRecord, Row, Spoken, read_hardening
from backtalk.stats import Rate
from backtalk.store.typed import read_part
from backtalk.terminal import make_console
from backtalk.wording import percent_range


def print_hardening(
    summary: Mapping[str, Any],
    console: Console | None = None,
    held_out: Comparison | None = None,
    pages: Sequence[str] = (),
    unmask: bool = False,
) -> None:
    """What changed, the proof, the cost, and the files. `held_out` compares the held-out list case by case;
    `pages` are the files to open."""
    console, record = console or make_console(), read_hardening(summary)
    console.print(line(record.headline(), "yellow" if record.unchanged else "bold"))
    if (own := record.train) is not None:
        trained = f"{own.before.hits} of {own.before.n} hit before, {own.after.hits} after: {own.told()}."
        console.print(line(f"Training list: {trained}"))
    if held_out is not None:
        print_comparison(held_out, console, unmask)
    if record.proof:
        console.print(_proof(record.proof))
    if record.cost is not None:
        _print_cost(record.cost, console)
    said = [*_talk(record), _kept(record)]
    for text in said + ([f"Pages: {', '.join(pages)}"] if pages else []):
        console.print(line(text))


def _print_cost(cost: CostRecord, console: Console) -> None:
    title = f"What it cost, on {cost.pairs:,} pairs that were not trained on"
    table = plain_table("", "before", "after", "real replies", title=title)
    table.add_column("", overflow="fold")
    for row in cost.rows:
        table.add_row(*map(line, (row.name, row.before, row.after, row.real, row.note)))
    console.print(table)
    said = ", ".join(f'"{cut(text)}" ({whose})' for whose, text in cost.said)
    console.print(line(f"Said most often: {said}."))
    replies = plain_table(title="Replies, unselected")
    for name in ("input", "before", "after"):
        replies.add_column(name, ratio=1, overflow="fold")
    for reply in cost.replies:
        replies.add_row(*map(cut, reply))
    console.print(replies)


def _proof(rows: Sequence[Row]) -> Table:
    table = plain_table("list", title="Proof, with seeds that training never used (95% intervals)")
    table.add_column("search, budget, criterion", overflow="fold")
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        mark = "" if row.trained_with else " (not used in training)"
        told = [row.search + mark, *([row.budget] if row.budget else []), row.criterion]
        before = _share(row.before) if row.before else ["not searched"]
        cells = ([row.list], told, before, _share(row.after))
        table.add_row(*(Text("\n").join(map(cut, cell)) for cell in cells))
    return table


def _share(hits: Rate) -> list[str]:
    interval = [percent_range(hits.low, hits.high)] if hits.n else []
    return [f"{hits.hits} of {hits.n}", *interval]


def _talk(record: HardeningRecord) -> list[str]:
    """How the kept model talks compared with the original one, and which iterations broke it."""
    lines = []
    if record.best is not None:
        first, last = (read_part(Spoken, one.talk) for one in (record.candidates[0], record.best))
        if first and last:
            lines.append(
                f"In conversations like those of the findings: before, {first.told()}; after, {last.told()}."
            )
    for one in record.candidates:
        if one.broken:
            kept = " It is kept, as --keep last asks." if one is record.best else ""
            lines.append(f"Iteration {one.iterations} broke the model in conversations: {one.broken}.{kept}")
    return lines


def _kept(record: HardeningRecord) -> str:
    asked = record.settings.get("iterations")
    of = f" of {asked}" if isinstance(asked, int) else ""
    kept = "" if record.kept is None else f"Iteration {record.kept}{of} was kept. "
    return f"{kept}Hardened model: {record.hardened}"
