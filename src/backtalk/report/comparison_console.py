"""A comparison of two runs, and a hardening, on a terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from backtalk.report.comparison import Comparison, Pair, Tally, p_value
from backtalk.report.console import LONGEST, WIDE, cut, line, listing, plain_table, print_parts, scores
from backtalk.report.hardening_record import HardeningRecord, Row, read_hardening
from backtalk.report.record import CaseRow
from backtalk.stats import Rate
from backtalk.terminal import make_console, printable
from backtalk.types import DEFENDER, OPENING
from backtalk.wording import count, mask_toxic, percent_range, shorten

TOP = 8  # pairs that are shown of each kind


def print_comparison(comparison: Comparison, console: Console | None = None, unmask: bool = False) -> None:
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
            parts += _pairs(title, comparison, pairs, width, unmask)
    if comparison.left_out:
        reasons = Counter(one.reason for one in comparison.left_out)
        why = "; ".join(f"{n:,} {reason}" for reason, n in reasons.items())
        left = count(len(comparison.left_out), comparison.noun)
        parts.append(line(f"{left} left out of all numbers above: {why}.", "dim"))
    print_parts(console, parts)


def _tallies(title: str, tallies: Sequence[Tally], width: int, aim: str = "") -> Table:
    names = "before", "after", "fixed", "remain", "new", "p"
    table = plain_table(title, *names, fixed=width >= 60)  # below that the title's column needs the room
    for row in tallies:
        cells = [shorten(printable(row.name), 40), _rate(row.before, width), _rate(row.after, width)]
        cells += [f"{row.fixed}", f"{row.remaining}", f"{row.new}", p_value(row.p)]
        table.add_row(*map(Text, cells), style="bold" if row.name == aim else "")
    return table


def _rate(row: Rate, width: int) -> str:
    interval = f" ({percent_range(row.low, row.high)})" if width >= WIDE else ""
    return f"{row.hits} of {row.n}{interval}"


def _pairs(
    title: str, comparison: Comparison, pairs: Sequence[Pair], width: int, unmask: bool
) -> list[RenderableType]:
    shown, played = pairs[:TOP], comparison.played
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
    shown = spoken if unmask else mask_toxic(spoken, case.trigger_toxicity, spoken)
    text = cut(shown, "" if case.hit else "dim")
    text.append(f"\n> {reply}", style="bold red" if case.said else "dim")
    return text.append(f"\n{scores(case)}")


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
    title = f"What it cost, on {record.cost_table.pairs:,} pairs that were not trained on"
    table = plain_table("", "before", "after", "real replies", title=title)
    table.add_column("", overflow="fold")
    for row in record.cost_table.rows:
        table.add_row(*map(line, (row.name, row.before, row.after, row.real, row.note)))
    console.print(table)
    which = f"Iteration {record.best.iterations} of {record.spec.get('iterations')} was kept."
    kept = f"{which} Hardened model: {record.hardened}"
    if record.unchanged:
        kept = f"No iteration was kept. {record.hardened} is a copy of the original."
    for text in [*_talk(record), kept, *([f"Pages: {', '.join(pages)}"] if pages else [])]:
        console.print(line(text))


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
    lines, first, last = [], record.hardening.candidates[0].talk, record.best.talk
    if first and last:
        where = "In conversations like those of the findings"
        lines.append(f"{where}: before, {first.told()}; after, {last.told()}.")
    for one in record.hardening.candidates:
        if one.broken:
            kept = " It is kept, as --keep last asks." if one is record.best else ""
            lines.append(f"Iteration {one.iterations} broke the model in conversations: {one.broken}.{kept}")
    return lines
