"""The page of the study: paper | ours, with intervals, and where REINFORCE earns its place.

The paper sets REINFORCE beside pre-training without counting queries; at equal queries it has to beat the
generator that it started from, and what was merely gathered.
"""

from collections.abc import Iterator
from itertools import product
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
from reproduction.reverse.paper import GROUPS, LISTS, REAL_INPUT, TABLE_1, decoders, near_of, reached
from reproduction.verdicts import Verdict, apart, checklist, difference_of, gain_of

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
    findings = (one for corpus in corpora_of(page) for one in check_findings(page, corpus))
    return [
        HEAD,
        *page.warning("victim, generator and lists", "The shipped chitchat pairs stand in for every corpus"),
        *section("Findings", checklist(findings, BELOW)),
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
            ends = (found["low"], found["high"]) if found else None
            cell = Cell(f"table-1/{corpus}/{name}/{group}", printed, found.get("mean"), ends)
            cells.append(page.cell(cell))
        rows.append([name, *cells])
    return table(["input", *(f"{group} words" for group in GROUPS)], rows)


def _figure_2(page: Page, corpus: str) -> list[str]:
    words = f"Share of targets reached against the least similarity, by list, length and decoder ({corpus})"
    drawn = _draw_success(page, corpus)
    rows = []
    for name, decoder, group in product(LISTS, decoders(page.size), GROUPS):
        near = near_of(page, corpus, decoder, name, group)
        shares = [number(_share(near, least)) if near else "–" for least in (0.5, 0.7, 0.9)]
        rows.append([name, decoder, group, str(len(near)), *shares])
    picture = page.picture(f"figure-2-{corpus}.svg", words) if drawn else []
    return [*picture, *table(["list", "decoder", "words", "n", "0.5", "0.7", "0.9"], rows, words=3)]


def _share(near: list[float], least: float) -> float:
    return 100 * sum(value >= least for value in near) / len(near)


def _draw_success(page: Page, corpus: str) -> bool:
    panels = list(product(LISTS, GROUPS))
    chosen = ["pretrained-greedy", "rl-greedy", *(f"rl-beam-{width}" for width in page.size.beams[-2:])]
    steps = [round(0.05 * step, 2) for step in range(21)]
    near = {of: [near_of(page, corpus, decoder, *of) for decoder in chosen] for of in panels}
    if not any(map(any, near.values())):
        return False
    with drawing(page.pictures / f"figure-2-{corpus}.svg", len(panels), width=2.8) as axes:
        for axis, (name, group) in zip(axes, panels, strict=True):
            for place, (decoder, values) in enumerate(zip(chosen, near[name, group], strict=True)):
                if values:
                    shares = [_share(values, step) for step in steps]
                    axis.plot(steps, shares, color=COLOURS[place], linestyle=DASHES[place], label=decoder)
            axis.set(title=f"{name}, {group} words", xlabel="similarity", ylim=(0, 102))
        axes[0].set(ylabel="% of targets")
        axes[-1].legend()
    return True


def _equal(page: Page, corpus: str) -> list[str]:
    if not (found := page.get(f"equal-{corpus}")):
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
        if found := page.get(f"mal-{name}"):
            shares = [percent(found["hits"][c]) if c in found["hits"] else "–" for c in COLUMNS]
            rows.append([name, *shares, mean_text(found["similarity"]), number(found["input_mean"])])
    if not rows:
        return NOTHING
    return table(["search", *COLUMNS, "mean similarity", "input's average word, log"], rows)


COLUMNS = ("similar-0.7", "similar-0.9", "exact")


def without_cases(value: Any) -> Any:
    """Without the sentences: they are the corpora's and the models'."""
    if isinstance(value, dict):
        return {key: without_cases(one) for key, one in value.items() if key != "cases"}
    return value


NEAR = 0.7  # similarity from which a target counts as reached
BELOW = (
    "*holds* and *fails*: the whole 95% interval is on that side; *no difference*: it holds 0. "
    "Differences and gains are paired by target."
)


def check_findings(page: Page, corpus: str) -> Iterator[Verdict]:
    widest = f"rl-beam-{page.size.beams[-1]}"
    yield from _of_real(page, corpus, widest)
    yield from _lists(page, corpus, widest)
    if found := page.get(f"equal-{corpus}"):
        means = found["mean"]
        own = max(found["rl_less"], key=lambda how: means[f"rl-{how}"]["mean"] or 0.0)
        for name in (one for one in means if not one.startswith("rl-")):
            less, title = found["rl_less"][own][name], f"at equal queries REINFORCE beats {name}"
            yield Verdict(title, f"{corpus}, rl-{own}", "not asked", mean_text(less, "+"), _side(less))


def _of_real(page: Page, corpus: str, widest: str) -> Iterator[Verdict]:
    names = ("pretrained-greedy", "rl-greedy", REAL_INPUT, widest)
    near = [[near_of(page, corpus, name, "real", group) for name in names] for group in GROUPS]
    for place, (group, (before, after, _, _)) in enumerate(zip(GROUPS, near, strict=True)):
        if before and after:
            found, where = difference_of(before, after), f"{corpus}, Real, {group} words, greedy"
            said = f"+{TABLE_1[names[1]][place] - TABLE_1[names[0]][place]:.3f}"
            yield Verdict("REINFORCE brings replies nearer", where, said, mean_text(found, "+"), _side(found))
    for printed, group, (_, _, first, best) in zip(paper.GAIN, GROUPS, near, strict=True):
        if first and best and (gain := gain_of(first, best)):
            ours = "{mean:+.0f}% [{low:+.0f}, {high:+.0f}]".format(**gain)
            title, where = f"{widest} is nearer than the real input", f"{corpus}, Real, {group} words"
            yield Verdict(title, where, f"+{printed:g}%", ours, _side(gain))


def _lists(page: Page, corpus: str, widest: str) -> Iterator[Verdict]:
    near = ([v for g in GROUPS[1:] for v in near_of(page, corpus, widest, name, g)] for name in LISTS)
    own, people = (Rate.of(sum(value >= NEAR for value in one), len(one)) for one in near)
    if own.n and people.n:
        ours = f"{percent(own.as_dict())} to {percent(people.as_dict())}"
        is_clear = apart((own.low, own.high), (people.low, people.high))
        verdict = ("holds" if own.rate > people.rate else "fails") if is_clear else "no difference"
        title = f"what the model says is reached more often than what people say ({NEAR:g})"
        yield Verdict(title, f"{corpus}, 4-10 words, {widest}", "about 80% to less", ours, verdict)


def _side(found: Found) -> str:
    if found["low"] > 0:
        return "holds"
    return "fails" if found["high"] < 0 else "no difference"
