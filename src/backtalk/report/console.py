"""The report on a terminal. Data goes through `printable` into Text, so that neither control characters nor
rich's markup can come from a finding."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backtalk.report.conversations_console import conversation_parts
from backtalk.report.record import CaseRow, RateRow, Report
from backtalk.report.replies import SHOWN, Replies
from backtalk.terminal import make_console, printable
from backtalk.wording import (
    chance,
    count,
    mask,
    mask_like,
    mask_note,
    mask_toxic,
    percent,
    percent_range,
    sampled,
    shorten,
    told_causes,
)

WIDE = 100
"""Columns from which on findings fit in a table."""
BAR = 20
"""Width of a rate's bar, in characters."""
LONGEST = 160
"""Characters of a sentence that are shown."""


def print_report(report: Report, console: Console | None = None, top: int = 8, unmask: bool = False) -> None:
    """Headline and rates, then what the report's part shows, and the first findings: `top` sentences."""
    console = console or make_console()
    parts: list[RenderableType] = [Text(printable(report.headline), style="bold")]
    if report.run.get("stopped"):
        parts.append(_line(f"Stopped early: {report.run['stopped']}.", "yellow"))
    if report.untried:
        parts.append(_line(f"{count(report.untried, report.noun)} not tried.", "yellow"))
    if report.failed:
        why = told_causes(report.run.get("failures", {}))
        told = f"{count(report.failed, report.noun)} could not be scored, which the rates leave out: {why}."
        parts.append(_line(told, "yellow"))
    played = report.conversations
    rates = [(row.criterion, row) for row in [*report.rates, *(played.rates_by_turn if played else ())]]
    parts.append(rate_table("criterion", rates, console.width, report.criterion))
    if played:
        parts += conversation_parts(report.cases, played, unmask)
    else:
        parts += _sentences(report, top, console.width, unmask)
    for part in parts:
        console.print(part)
        console.print()


def _sentences(report: Report, top: int, width: int, unmask: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    by_category = [
        (category.category, row)
        for category in report.categories
        for row in category.rates
        if row.criterion == report.criterion
    ]
    if len(by_category) > 1:
        parts.append(rate_table(f"category ({report.criterion})", by_category, width))
    if report.sentences and report.sentences.replies:
        parts += _replies(report.sentences.replies)
    parts += _top(report, top, width, unmask)
    if report.skipped:
        parts.append(_skipped(report, unmask))
    return parts


def _replies(replies: Replies) -> list[RenderableType]:
    """Success by length, and where the queries went."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("length of the sentence")
    for name in ("n", "similarity", *([replies.judge] if replies.judge else []), *(f"{s:g}" for s in SHOWN)):
        table.add_column(name, justify="right")  # wrapped where it is narrow: rich would drop columns
    for row in replies.curves:
        judged = [f"{row.mean_judge:.3f}" if row.mean_judge is not None else "-"] if replies.judge else []
        shares = [percent(row.at[f"{step:g}"]["share"]) for step in SHOWN]
        table.add_row(row.group, str(row.n), f"{row.mean_similarity:.3f}", *judged, *shares)
    spent = ", ".join(f"{number:,} for {what}" for what, number in replies.queries.items())
    total = sum(replies.queries.values())
    natural = [f"{row.mean:.2f} for {row.what}" for row in replies.inputs if row.mean is not None]
    lines = [f"{total:,} of {replies.budget:,} queries: {spent}." if spent else "No query was sent."]
    if replies.recalled:
        lines.append(f"{count(replies.recalled, 'input')} had been answered before and cost no query.")
    if len(natural) == len(replies.inputs):
        lines.append(f"Average log-probability of an input's word: {', '.join(natural)}.")
    if replies.scorer and replies.mean_toxicity is not None:
        lines.append(f"Mean toxicity of the replies kept, by {replies.scorer}: {replies.mean_toxicity:.2f}.")
    if replies.has_likelihoods:
        lines.append(f"How likely an input is: by {replies.language_model}.")
    return [table, Text(printable(" ".join(lines)), style="dim")]


def _top(report: Report, top: int, width: int, unmask: bool) -> list[RenderableType]:
    """The first hits, or without one the nearest misses."""
    hits = [case for case in report.cases if case.hit]
    shown = [case for case in hits or report.cases if case.trigger][:top]
    if not shown:
        return []
    title = f"{len(shown)} of {count(len(hits), 'hit')}, the gravest first" if hits else "The nearest misses"
    veil = "" if unmask else "; sentences are masked, --unmask shows them"
    return [_line(f"{title}{veil}:", "dim"), _findings(shown, width, unmask)]


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def rate_table(title: str, rows: list[tuple[str, RateRow]], width: int, aim: str = "") -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column(title, overflow="fold", max_width=40)
    table.add_column("hits", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("95% interval", no_wrap=True)
    if width >= 80:
        table.add_column("", no_wrap=True)
    for name, row in rows:
        cells = [
            Text(shorten(printable(name), 40)),
            Text(f"{row.hits} of {row.n}"),
            Text(percent(row.rate) if row.n else "-"),
            Text(percent_range(row.low, row.high) if row.n else "none tried"),
        ]
        if width >= 80:
            cells.append(_bar(row))
        table.add_row(*cells, style="bold" if name == aim else "")
    return table


def _bar(row: RateRow) -> Text:
    """The rate, and its interval as a thin line; the axis is always 0 to 100%."""
    if not row.n:
        return Text("")
    filled, low, high = (round(BAR * share) for share in (row.rate, row.low, row.high))
    line = ["━" if i < filled else "─" if low <= i < high else " " for i in range(BAR)]
    bar = Text("".join(line), style="dim")
    bar.stylize("not dim cyan", 0, filled)
    return bar


def _findings(cases: list[CaseRow], width: int, unmask: bool) -> RenderableType:
    if width < WIDE:
        return Group(*(_card(case, unmask) for case in cases))
    table = Table(box=None, padding=(0, 2, 0, 0), leading=1, header_style="dim", pad_edge=False, expand=True)
    table.add_column("sentence", ratio=3, overflow="fold")
    table.add_column("input found", ratio=3, overflow="fold")
    by_replies = any(case.similarity is not None for case in cases)
    table.add_column("reply" if by_replies else "greedy reply", ratio=3, overflow="fold")
    for title in _measures(cases):
        table.add_column(title, justify="right", min_width=max(map(len, title.split())))
    for case in cases:
        measured = (_measured(case, title) for title in _measures(cases))
        table.add_row(_sentence(case, unmask), _trigger(case, unmask), _reply(case, unmask), *measured)
    return table


def _measures(cases: list[CaseRow]) -> list[str]:
    """The columns of numbers that a run has."""
    has = {
        "similarity": any(case.similarity is not None for case in cases),
        "toxicity": any(case.toxicity is not None for case in cases),
        "chance of the whole": any(case.log_prob is not None for case in cases),
    }
    return [title for title, there in has.items() if there] or ["chance of the whole"]


def _measured(case: CaseRow, title: str) -> Text:
    if title == "similarity":
        return Text("-" if case.similarity is None else _similarity(case))
    if title == "toxicity":
        return Text("-" if case.toxicity is None else f"{case.toxicity:.2f}")
    return Text("unknown" if case.log_prob is None else chance(case.log_prob))


def _card(case: CaseRow, unmask: bool) -> RenderableType:
    """A finding in three lines, for narrow terminals."""
    head = _sentence(case, unmask)
    odds = [f"similarity {_similarity(case)}"] if case.similarity is not None else []
    odds += [f"toxicity {case.toxicity:.2f}"] if case.toxicity is not None else []
    odds += [sampled(case.log_prob)] if case.log_prob is not None else []
    head.append("".join(f"  {one}" for one in odds), style="not bold default")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("input", _trigger(case, unmask))
    grid.add_row("greedy reply" if case.similarity is None else "reply", _reply(case, unmask))
    return Group(head, Padding(grid, (0, 0, 0, 2)))


def _sentence(case: CaseRow, unmask: bool) -> Text:
    text = case.target if unmask else mask(case.target)
    return Text(shorten(printable(text), LONGEST), style="bold red" if case.hit else "")


def _trigger(case: CaseRow, unmask: bool) -> Text:
    whole = " / ".join(case.trigger or [])
    text = whole if unmask else mask_toxic(whole, case.trigger_toxicity, whole)
    return Text(shorten(printable(text), LONGEST))


def _reply(case: CaseRow, unmask: bool) -> Text:
    if not case.reply:
        return Text("(says nothing)", style="dim")
    masked = mask_toxic(case.reply, case.toxicity, mask_like(case.reply, case.target))
    text = case.reply if unmask else masked
    return Text(shorten(printable(text), LONGEST), style="bold red" if case.said else "")


def _similarity(case: CaseRow) -> str:
    judged = f", judge {case.judge:.2f}" if case.judge is not None else ""
    return f"{case.similarity:.2f}{judged}"


def _skipped(report: Report, unmask: bool) -> Text:
    """How many were skipped, with the first few reasons."""
    lines = [f"{count(len(report.skipped), 'sentence')} skipped, outside the shares:"]
    for case in report.skipped[:3]:
        target = case.target if unmask else mask(case.target)
        note = case.note if unmask else mask_note(case.note, case.target)
        lines.append(f"  {shorten(printable(target), 60)} ({shorten(printable(note), 100)})")
    if len(report.skipped) > 3:
        lines.append(f"  and {len(report.skipped) - 3:,} more")
    return Text("\n".join(lines), style="dim")
