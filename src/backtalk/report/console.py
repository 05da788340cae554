"""The report on a terminal. Data goes through `printable` into Text, so that neither control characters nor
rich's markup can come from a finding."""

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backtalk.report.conversations import spread_words
from backtalk.report.record import CaseRow, Conversation, Conversations, RateRow, Report
from backtalk.report.replies import SHOWN, Replies
from backtalk.report.verdict import NAMES, hit_words, verdict_sentences
from backtalk.terminal import make_console, printable
from backtalk.wording import chance, count, mask_toxic, percent, percent_range, sampled, shorten

WIDE = 100  # columns from which on findings fit in a table
BAR = 20  # width of a rate's bar, in characters
LONGEST = 160  # characters of a text that are shown
TOP_CONVERSATIONS = 5
PER_WORD_NOTE = (
    "These criteria of He & Glass (2019) look at one word at a time or average over words, so a hit may be a"
    " sentence with a chance of 1 in billions. o: any input; io: an input that is itself likely."
)


def print_report(report: Report, console: Console | None = None, top: int = 8, unmask: bool = False) -> None:
    """The verdict, the worst findings (`top` sentences), then the rates and tables of the report's part."""
    console = console or make_console()
    played = report.conversations
    parts: list[RenderableType] = _verdict(report)
    if played:
        parts += _played(report.cases, unmask)
        rates = [(row.criterion, row) for row in [*report.rates, *played.rates_by_turn]]
        parts.append(_rates("criterion", rates, console.width, report.criterion))
        parts += _conversations(played)
    else:
        parts += _sentences(report, top, console.width, unmask)
    print_parts(console, parts)


def _verdict(report: Report) -> list[RenderableType]:
    """Said and chance, the criterion of --hit, what is missing; then the severities."""
    verdict = report.verdict
    told = [*verdict_sentences(verdict), *filter(None, [report.traffic])]
    lines = [line(words, "bold") for words in told]
    if not verdict.note:
        lines.append(line(f"--hit {report.criterion}: {hit_words(report.main)}."))
    lines += [line(f"Same inputs, {words}") for words in report.others]
    lines += [line(words, "dim") for words in report.remarks]
    lines += [line(words, "yellow") for words in report.warnings]
    if len(verdict.severity) < 2:
        return [Group(*lines)]
    table = plain_table("severity", "tried", "said", *([NAMES["1e-6"]] if verdict.over else []))
    for level, row in verdict.severity.items():
        cells = (row.cases, row.said, row.likely)
        table.add_row(level, *(f"{cell:,}" for cell in cells if cell is not None))
    return [Group(*lines), table]


def print_parts(console: Console, parts: Sequence[RenderableType]) -> None:
    for part in parts:
        console.print(part)
        console.print()


def line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def cut(text: str, style: str = "", longest: int = LONGEST) -> Text:
    return Text(shorten(printable(text), longest), style=style)


def plain_table(*titles: str, title: str = "", fixed: bool = False) -> Table:
    """A table without lines. All columns but the first are numbers, which `fixed` keeps on one line."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, title_justify="left")
    table.title = Text(f"\n{title}") if title else None
    for place, name in enumerate(titles):
        table.add_column(
            name, justify="right" if place else "left", overflow="fold", no_wrap=fixed and place > 0
        )
    return table


def listing(titles: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> RenderableType:
    """Rows of texts as a table; on a narrow terminal the first text of a row is the head of a card, and the
    others stand below it with their titles."""
    if width < WIDE:
        return Group(*(card(row[0], zip(titles[1:], row[1:], strict=True)) for row in rows))
    table = plain_table()
    table.leading, table.expand = 1, True
    for title in titles:
        table.add_column(title, ratio=3, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def card(head: Text, rows: Iterable[tuple[str, Text]]) -> RenderableType:
    """A head, and below it texts with their labels."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return Group(head, Padding(grid, (0, 0, 0, 2)))


def scores(case: CaseRow) -> str:
    """Similarity, toxicity and chance of a finding, as far as they are known."""
    known = []
    if case.similarity is not None:
        judged = f", judge {case.judge:.2f}" if case.judge is not None else ""
        known.append(f"similarity {case.similarity:.2f}{judged}")
    if case.toxicity is not None:
        known.append(f"toxicity {case.toxicity:.2f}")
    if case.log_prob is not None:
        known.append(sampled(case.log_prob))
    return "; ".join(known) or "chance unknown"


def _rates(title: str, rows: Sequence[tuple[str, RateRow]], width: int, aim: str = "") -> Table:
    bars = width >= 80
    table = plain_table(title, "hits", "share", "95% interval", fixed=True)
    if bars:
        table.add_column("", no_wrap=True)
    for name, row in rows:
        interval = percent_range(row.low, row.high) if row.n else "none tried"
        cells = [cut(name, longest=40), Text(f"{row.hits} of {row.n}")]
        cells += [Text(percent(row.rate) if row.n else "-"), Text(interval)]
        table.add_row(*cells, *([_bar(row)] if bars else []), style="bold" if name == aim else "")
    return table


def _bar(row: RateRow) -> Text:
    """The rate, and its interval as a thin line; the axis is always 0 to 100%."""
    if not row.n:
        return Text("")
    filled, low, high = (round(BAR * share) for share in (row.rate, row.low, row.high))
    bar = Text("".join("━" if i < filled else "─" if low <= i < high else " " for i in range(BAR)), "dim")
    bar.stylize("not dim cyan", 0, filled)
    return bar


def _sentences(report: Report, top: int, width: int, unmask: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    replies = report.sentences.replies if report.sentences else None
    found = [case for case in report.cases if case.trigger]
    if shown := found[:top]:
        title = f"{len(shown):,} of {count(len(found), 'finding')}, the worst first"
        veil = "" if unmask else "; sentences are masked, --unmask shows them"
        titles = ("sentence", "input", "reply" if replies else "greedy reply", "scores")
        rows = [_finding(case, unmask) for case in shown]
        parts += [line(f"{title}{veil}:", "dim"), listing(titles, rows, width)]
    if report.skipped:
        lines = [f"{count(len(report.skipped), 'sentence')} skipped, outside the shares:"]
        for case in report.skipped[:3]:
            target, note = printable(case.shown("target", unmask)), printable(case.shown("note", unmask))
            lines.append(f"  {shorten(target, 60)} ({shorten(note, 100)})")
        if len(report.skipped) > 3:
            lines.append(f"  and {len(report.skipped) - 3:,} more")
        parts.append(Text("\n".join(lines), style="dim"))
    if report.verdict.note:
        return parts
    if replies:
        parts += _replies(replies)
    of_all = ((name, row) for name, rates in report.categories.items() for row in rates)
    by_category = [(name, row) for name, row in of_all if row.criterion == report.criterion]
    if len(by_category) > 1:
        parts.append(_rates(f"category ({report.criterion})", by_category, width))
    if report.whole:
        whole = [(row.criterion, row) for row in report.whole]
        parts.append(_rates("criterion", whole, width, report.criterion))
    return [*parts, *_per_word(report.per_word)]


def _per_word(rates: Sequence[RateRow]) -> list[RenderableType]:
    """The criteria that look at words, each with any input (o) and with a likely one (io)."""
    if not rates:
        return []
    by_name: dict[str, dict[str, str]] = {}
    for row in rates:
        side, _, name = row.criterion.partition("-")
        by_name.setdefault(name, {})[side] = f"{row.hits:,} of {row.n:,} ({percent(row.rate)})"
    table = plain_table("per word", "o", "io")
    for name, sides in by_name.items():
        table.add_row(name, sides.get("o", ""), sides.get("io", ""))
    return [Group(table, line(PER_WORD_NOTE, "dim"))]


def _replies(replies: Replies) -> list[RenderableType]:
    """Success by length, and where the queries went."""
    judge = [replies.judge] if replies.judge else []
    steps = [f"{step:g}" for step in SHOWN]
    table = plain_table("length of the sentence", "n", "similarity", *judge, *steps)
    for row in replies.curves:
        judged = [f"{row.mean_judge:.3f}" if row.mean_judge is not None else "-"] if replies.judge else []
        shares = [percent(row.at[step].rate) for step in steps]
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
    return [table, line(" ".join(lines), "dim")]


def _finding(case: CaseRow, unmask: bool) -> list[Text]:
    reply = cut(case.shown("reply", unmask), "bold red" if case.said or case.rated_bad else "")
    return [
        cut(case.shown("target", unmask), "bold red" if case.hit else ""),
        cut(case.shown("input", unmask)),
        reply if case.reply else Text("(says nothing)", style="dim"),
        Text(scores(case)),
    ]


def _conversations(part: Conversations) -> list[RenderableType]:
    """The paper's table by turn, other runs below; players."""
    rewarded = ["by the reward's scorer"] if any(row.rewarded for row in part.by_turn) else []
    turns = plain_table("turn", "defender", "whole turn", "prompt", "log-ppl", *rewarded)
    for name, rows in {"": part.by_turn, **part.beside}.items():
        for row in rows:
            numbers = [row.defender, row.pair, row.adversary, row.log_ppl]
            numbers += [row.rewarded] if row.rewarded and rewarded else []
            cells = [f"{name} {row.turn or 'all'}".strip(), *map(spread_words, numbers)]
            turns.add_row(*map(line, cells), style="dim" if name else "")
    parts: list[RenderableType] = [turns]
    if len(part.players) > 1:
        table = plain_table("attacker", "log-ppl", "toxicity", "different prompts", "repeats", "")
        for one in part.players:
            cells = [shorten(one.name, 28), f"{one.log_ppl:.3f}", f"{one.toxicity:.3f}"]
            cells += [percent(one.different), percent(one.loops), "on the front" if one.on_front else ""]
            table.add_row(*map(line, cells))
        parts.append(table)
    return parts


def _played(cases: Sequence[CaseRow], unmask: bool) -> list[RenderableType]:
    """The first conversations."""
    parts: list[RenderableType] = []
    played = [case for case in cases if case.conversation]
    hits = [case for case in played if case.hit]
    if shown := (hits or played)[:TOP_CONVERSATIONS]:
        title = f"{len(shown)} of {count(len(hits), 'hit')}," if hits else "No hit;"
        veil = "" if unmask else "; toxic turns are masked, --unmask shows them"
        parts.append(Text(f"{title} the likeliest and worst first{veil}:", style="dim"))
        parts += [_conversation(one.conversation, one.hit, unmask) for one in shown if one.conversation]
    return parts


def _conversation(played: Conversation, hit: bool, unmask: bool) -> RenderableType:
    """Up to the worst turn."""
    worst = played.exchanges[played.worst]
    head = Text(f"turn {played.worst + 1}: toxicity {worst.toxicity:.2f}", style="bold red" * hit)
    head.append(f"  the prompts have a chance of {chance(played.log_prob)}", style="not bold default")
    turns = [("opening", text, 0.0) for text in played.opening]
    for one in played.exchanges[: played.worst + 1]:
        turns.append(("adversary", one.adversary, one.adversary_toxicity))
        turns.append(("defender", one.defender, one.toxicity))
    rows = []
    for who, text, toxicity in turns:
        words = " ".join(text.split())
        shown = cut(words if unmask else mask_toxic(words, toxicity, words))
        rows.append((who, shown if shown or who == "opening" else Text("(says nothing)")))
    return card(head, rows)
