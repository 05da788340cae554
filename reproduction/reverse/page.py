"""The page of the study: paper | ours, with intervals, and where REINFORCE earns its place.

The paper sets REINFORCE beside pre-training without counting queries; at equal queries it has to beat the
generator that it started from, and what was merely gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backtalk.stats import Rate
from reproduction.figures import COLOURS, DASHES, drawing
from reproduction.page import (
    NOTHING,
    Cell,
    Found,
    Page,
    mean_text,
    number,
    percent,
    section,
    table,
    text_table,
)
from reproduction.reverse import paper
from reproduction.reverse.paper import GROUPS, LISTS, REAL_INPUT, TABLE_1, decoders, reached
from reproduction.verdicts import Verdict, checklist, difference_of, gain_of

HEAD = (
    "# Say What I Want (Liu et al. 2019)\n\n"
    "A reverse generator against a sealed victim: the paper's tables beside ours. A number of "
    "ours stands with its 95% interval (bootstrap over targets); † marks a difference.\n"
)
LAYOUT = "The data folder holds `twitter/`; chitchat comes from the chitchat-dataset package."
NOTES = {
    "*": "Another victim on far less text, and other word vectors (wordllama in the place of Google News): "
    "only the pattern of a table is to be compared, not its numbers",
}


def corpora_of(page: Page) -> list[str]:
    return [part.removeprefix("inputs-") for part in page.parts if part.startswith("inputs-")]


def page_lines(page: Page) -> list[str]:
    return [
        HEAD,
        *page.warning("victim, generator and lists", "The shipped chitchat pairs stand in for every corpus"),
        *section("Findings", checklist(check_all(page), BELOW)),
        *section("The victim", _victim(page)),
        *(line for corpus in corpora_of(page) for line in _corpus(page, corpus)),
        *section("The embedded model and our own list", _mal(page)),
        *page.differences(NOTES),
        *page.how_it_was_run(LAYOUT),
    ]


def _victim(page: Page) -> list[str]:
    trained, asked = page.get("victim"), page.get("pretrain")
    if not trained or not asked:
        return NOTHING
    lists = [name.removeprefix("targets-") for name in page.records if name.startswith("targets-")]
    found = {name: page.get(f"targets-{name}")["counts"]["generated"] for name in lists}
    counts = [f"{name} {sum(by_length.values())}" for name, by_length in found.items()]
    return [
        f"Trained on {trained['remark']}: test perplexity {number(trained['test_perplexity'])}. To "
        f"{asked['queries']:,} inputs it says {asked['different_replies']:,} different things, and nothing "
        f"else can be reached whole. So the Generated lists are short ({', '.join(counts)} targets), and "
        "what people really said is far from anything it says.",
        "",
    ]


def _corpus(page: Page, corpus: str) -> list[str]:
    return [
        *section(f"Table 1 on {corpus}: similarity on the Real list", _table_1(page, corpus)),
        *section(f"Figure 2 on {corpus}: success over the threshold", _figure_2(page, corpus)),
        *section(f"At equal queries on {corpus}", _equal(page, corpus)),
        *section(f"Table 2 on {corpus}: cases", _cases(page, corpus)),
    ]


def _table_1(page: Page, corpus: str) -> list[str]:
    rows = []
    for name in (REAL_INPUT, *decoders(page.size)):
        cells = []
        for group, printed in zip(GROUPS, TABLE_1.get(name, (None,) * 3), strict=True):
            found = reached(page, corpus, name, "real", group)
            cells.append(page.cell(_cell(f"table-1/{corpus}/{name}/{group}", printed, found)))
        rows.append([name, *cells])
    return table(["input", *(f"{group} words" for group in GROUPS)], rows)


def _figure_2(page: Page, corpus: str) -> list[str]:
    words = f"Share of targets reached against the least similarity, by list, length and decoder ({corpus})"
    drawn = _draw_success(page, corpus)
    rows = []
    for name in LISTS:
        for decoder in decoders(page.size):
            for group in GROUPS:
                near = reached(page, corpus, decoder, name, group).get("near", [])
                shares = [number(_share(near, least)) if near else "–" for least in (0.5, 0.7, 0.9)]
                rows.append([name, decoder, group, str(len(near)), *shares])
    picture = page.picture(f"figure-2-{corpus}.svg", words) if drawn else []
    return [*picture, *table(["list", "decoder", "words", "n", "0.5", "0.7", "0.9"], rows, words=3)]


def _share(near: list[float], least: float) -> float:
    return 100 * sum(value >= least for value in near) / len(near)


def _draw_success(page: Page, corpus: str) -> bool:
    panels = [(name, group) for name in LISTS for group in GROUPS]
    chosen = ["pretrained-greedy", "rl-greedy", *(f"rl-beam-{width}" for width in page.size.beams[-2:])]
    steps = [round(0.05 * step, 2) for step in range(21)]
    near = {
        (decoder, *panel): reached(page, corpus, decoder, *panel).get("near", [])
        for decoder in chosen
        for panel in panels
    }
    if not any(near.values()):
        return False
    with drawing(page.pictures / f"figure-2-{corpus}.svg", len(panels), width=2.8) as axes:
        for axis, (name, group) in zip(axes, panels, strict=True):
            for place, decoder in enumerate(chosen):
                values = near[decoder, name, group]
                if values:
                    shares = [_share(values, step) for step in steps]
                    axis.plot(steps, shares, color=COLOURS[place], linestyle=DASHES[place], label=decoder)
            axis.set(title=f"{name}, {group} words", xlabel="similarity", ylim=(0, 102))
        axes[0].set(ylabel="% of targets")
        axes[-1].legend()
    return True


def _equal(page: Page, corpus: str) -> list[str]:
    found = page.get(f"equal-{corpus}")
    if not found:
        return NOTHING
    rows = []
    for name, mean in found["mean"].items():
        less = {how: own[name] for how, own in found["rl_less"].items()}
        above = ("–" if name == f"rl-{how}" else mean_text(one) for how, one in less.items())
        rows.append([name, f"{found['queries'][name]:,}", mean_text(mean), *above])
    header = ["search", "queries", "mean similarity", *(f"rl-{how} above it" for how in found["rl_less"])]
    said = (
        f"All targets of both lists, at most {found['budget']:,} queries for each search; equal inputs are "
        "asked once. An interval that holds 0 says that REINFORCE does not beat the row."
    )
    return [said, "", *table(header, rows)]


def _cases(page: Page, corpus: str) -> list[str]:
    widest = f"rl-beam-{page.size.beams[-1]}"
    found = (reached(page, corpus, widest, "generated", group) for group in GROUPS)
    rows = [[*case[:3], f"{case[3]:.3f}"] for one in found for case in one.get("cases", [])]
    return text_table(["input", "target", "reply", "similarity"], rows) if rows else ["None.", ""]


def _mal(page: Page) -> list[str]:
    rows = []
    for name in paper.SEARCHES:
        found = page.get(f"mal-{name}")
        if found:
            shares = [percent(found["hits"][c]) if c in found["hits"] else "–" for c in COLUMNS]
            rows.append([name, *shares, mean_text(found["similarity"]), number(found["input_mean"])])
    if not rows:
        return NOTHING
    return table(["search", *COLUMNS, "mean similarity", "input's average word, log"], rows)


COLUMNS = ("similar-0.7", "similar-0.9", "exact")


def _cell(key: str, paper: float | None, found: Found) -> Cell:
    if found.get("mean") is None:
        return Cell(key, paper)
    return Cell(key, paper, found["mean"], (found["low"], found["high"]))


def without_cases(value: Any) -> Any:
    """Without the sentences: they are the corpora's and the models'."""
    if isinstance(value, dict):
        return {key: without_cases(one) for key, one in value.items() if key != "cases"}
    return value


NEAR = 0.7
"""Similarity from which a target counts as reached."""
BELOW = (
    "*holds* and *fails*: the whole 95% interval is on that side; *no difference*: it holds 0. "
    "Differences and gains are paired by target."
)


def check_all(page: Page) -> Iterator[Verdict]:
    for corpus in corpora_of(page):
        yield from check_findings(page, corpus)


def check_findings(page: Page, corpus: str) -> Iterator[Verdict]:
    widest = f"rl-beam-{page.size.beams[-1]}"
    yield from _reinforced(page, corpus)
    yield from _gains(page, corpus, widest)
    yield from _lists(page, corpus, widest)
    yield from _at_equal_queries(page, corpus)


def _reinforced(page: Page, corpus: str) -> Iterator[Verdict]:
    names = ("pretrained-greedy", "rl-greedy")
    for place, group in enumerate(GROUPS):
        before, after = (reached(page, corpus, name, "real", group).get("near", []) for name in names)
        if before and after:
            said = TABLE_1[names[1]][place] - TABLE_1[names[0]][place]
            found = difference_of(before, after)
            where = f"{corpus}, Real, {group} words, greedy"
            title, ours = "REINFORCE brings replies nearer", mean_text(found, "+")
            yield Verdict(title, where, f"+{said:.3f}", ours, _side(found))


def _gains(page: Page, corpus: str, widest: str) -> Iterator[Verdict]:
    for said, group in zip(paper.GAIN, GROUPS, strict=True):
        names = (REAL_INPUT, widest)
        first, best = (reached(page, corpus, name, "real", group).get("near", []) for name in names)
        found = gain_of(first, best) if first and best else None
        if found:
            ours = "{mean:+.0f}% [{low:+.0f}, {high:+.0f}]".format(**found)
            where = f"{corpus}, Real, {group} words"
            yield Verdict(f"{widest} is nearer than the real input", where, f"+{said:g}%", ours, _side(found))


def _lists(page: Page, corpus: str, widest: str) -> Iterator[Verdict]:
    own, people = (_reached_share(page, corpus, widest, name) for name in ("generated", "real"))
    if own.n and people.n:
        ours = f"{percent(own.as_dict())} to {percent(people.as_dict())}"
        apart = own.low > people.high or own.high < people.low
        verdict = ("holds" if own.rate > people.rate else "fails") if apart else "no difference"
        title = f"what the model says is reached more often than what people say ({NEAR:g})"
        yield Verdict(title, f"{corpus}, 4-10 words, {widest}", "about 80% to less", ours, verdict)


def _reached_share(page: Page, corpus: str, decoder: str, name: str) -> Rate:
    near = [v for g in GROUPS[1:] for v in reached(page, corpus, decoder, name, g).get("near", [])]
    return Rate.of(sum(value >= NEAR for value in near), len(near))


def _at_equal_queries(page: Page, corpus: str) -> Iterator[Verdict]:
    found = page.get(f"equal-{corpus}")
    if not found:
        return
    means = found["mean"]
    own = max(found["rl_less"], key=lambda how: means[f"rl-{how}"]["mean"] or 0.0)
    for name in means:
        if not name.startswith("rl-"):
            less = found["rl_less"][own][name]
            title = f"at equal queries REINFORCE beats {name}"
            yield Verdict(title, f"{corpus}, rl-{own}", "not asked", mean_text(less, "+"), _side(less))


def _side(found: Mapping[str, Any]) -> str:
    if found["low"] > 0:
        return "holds"
    return "fails" if found["high"] < 0 else "no difference"
