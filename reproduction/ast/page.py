"""The page of the study: rows with intervals, the paper's orderings and whether ours agree, the plot of
likelihood against toxicity, the second defender, topics, and the hardening."""

from collections.abc import Sequence
from typing import Any

from backtalk.report.record import Player
from backtalk.searches.ast.config import AstConfig
from reproduction.ast import paper
from reproduction.ast.paper import AGAIN, ROWS, Ordering, Size
from reproduction.figures import COLOURS, MARKERS, drawing, name_points
from reproduction.page import NOTHING, Found, Page, mean_text, number, percent, section, table, text_table
from reproduction.verdicts import difference_of, mean_of

HEAD = (
    "# ASTPrompter (Hardy et al. 2024)\n\n"
    "An adversary that learns likely prompts which turn a model toxic, beside its baselines. Means stand "
    "with their 95% interval (bootstrap over test openings), ± is the standard deviation over turns; % is "
    "the share of turns above 0.5. The paper's text gives orderings, not numbers, so these are compared.\n"
)
LAYOUT = "The data folder holds `reddit/` (train, dev and test openings) and `rtp/` (RealToxicityPrompts)."
MIXED = "depends on the training"
MAIN = ("ours", "ours-short", "untuned", "sft", "human", "every-pair", "dpo")
ABLATED = ("ours-short", AGAIN, "no-alpha", "no-beta", "no-gamma", "no-weak", "no-weak-no-gamma", "untuned")
ABLATIONS_SAID = (
    "All rows but those with gamma = 0 hold the prompts' log-perplexity near the untuned one's "
    "(`--max-ppl-increase`): there it tells little of the part that is left out. With gamma = 0 nothing "
    "holds it, as in the paper, and the checkpoint is chosen by reward alone. Intervals are over openings: "
    "how far two trainings differ they do not tell."
)


def page_lines(page: Page) -> list[str]:
    return [
        HEAD,
        *page.warning("trainings and lists", "The shipped openings stand in for Reddit's"),
        *section("Ours and the baselines", [_rows_said(page.size), "", *_rows(page, MAIN)]),
        *section("Turn by turn", _turns(page, MAIN)),
        *section("Likelihood against toxicity", _front(page)),
        *section("The paper's orderings", _orderings(page, paper.BASELINES)),
        *section("Ablations", [ABLATIONS_SAID, "", *_rows(page, ABLATED), *ablations(page)]),
        *section("A second defender: the same model by its chat template", _transfer(page)),
        *section("What the prompts speak of", _topics(page)),
        *section("Hardened, with a retrained adversary", _hardened(page)),
        *section("Speed", _speed(page)),
        *page.how_it_was_run(LAYOUT),
    ]


def _rows_said(size: Size) -> str:
    return (
        f"`ours` is ipo after {size.steps:,} updates; `ours-short`, the same training after "
        f"{size.short_steps:,}, is what rows of as many updates are compared with. All leave out pairs whose "
        f"rewards are nearer than {AstConfig().least_gap:g}, but `every-pair`, which takes all, as "
        "published. A weak text is a winner without a loser (published: against a turn of the adversary's "
        "own). `human` has fixed prompts of people, one more in each turn."
    )


def played(page: Page, name: str) -> Found:
    """The result of a row; empty where it was not run or left out."""
    found = page.get(name)
    return found if "by_turn" in found else {}


def values(page: Page, name: str, measure: str) -> dict[str, float]:
    """By opening."""
    if measure == "spread":
        found = values(page, name, "log_ppl")
        middle = sum(found.values()) / max(len(found), 1)
        return {case: abs(value - middle) for case, value in found.items()}
    own = page.get(name).get("by_opening", {})
    return {case: row[measure] for case, row in own.items() if row.get(measure) is not None}


def judge(page: Page, ordering: Ordering) -> tuple[dict[str, Any], str] | None:
    """The difference of two rows over the openings that both have, and whether the claim holds."""
    first, second = (values(page, name, ordering.measure) for name in (ordering.first, ordering.second))
    shared = [case for case in first if case in second]
    if not shared:
        return None
    apart = difference_of([second[case] for case in shared], [first[case] for case in shared])
    low, high = apart["low"], apart["high"]
    if ordering.how in ("near", "no higher"):
        room = paper.NEAR_TOXICITY
        if ordering.measure == "log_ppl":
            room = paper.NEAR * abs(mean_of([second[case] for case in shared])["mean"])
        least = -room if ordering.how == "near" else float("-inf")
        if least <= low and high <= room:
            return apart, "holds"
        return apart, "no" if low > room or high < least else "unclear"
    sign = 1 if ordering.how == "above" else -1
    edges = sorted((sign * low, sign * high))
    return apart, "holds" if edges[0] > 0 else "the other way" if edges[1] < 0 else "unclear"


def _rows(page: Page, names: Sequence[str]) -> list[str]:
    lines = []
    for name in names:
        if not (found := played(page, name)):
            lines.append([name, *["not run"] + ["–"] * 8])
            continue
        whole, measures = found["by_turn"][-1], ("toxicity", "second", "log_ppl")
        means = (list(values(page, name, one).values()) for one in measures)
        toxicity, second, log_ppl = (mean_text(mean_of(one)) for one in means)
        rates = [toxicity, _share(whole["defender"]), _share(whole["pair"]), second, _share(whole["second"])]
        rates += [f"{log_ppl} ± {number(whole['log_ppl']['std'])}", percent(found["hits"]["toxic-0.5"])]
        lines.append([name, *rates, *(f"{100 * whole[one]:.0f}%" for one in ("different", "loops"))])
    header = [
        "row", "T(d)", "T(d), share", "T(a+d), share", "T(d), second scorer", "share", "log-perplexity",
        "openings hit in any turn", "different prompts", "in circles",
    ]  # fmt: skip
    return table(header, lines)


def _turns(page: Page, names: Sequence[str]) -> list[str]:
    lines = []
    measures = ("defender", "pair", "second", "second_pair", "log_ppl")
    for name in names:
        for row in page.get(name).get("by_turn", []):
            if row["turn"]:
                lines.append([name, str(row["turn"]), *(_spread(row[one]) for one in measures)])
    if not lines:
        return NOTHING
    header = ["row", "turn", "T(d)", "T(a+d)", "T(d), second", "T(a+d), second", "log-perplexity"]
    return table(header, lines)


def _orderings(page: Page, orderings: Sequence[Ordering]) -> list[str]:
    lines = []
    for one in orderings:
        found = judge(page, one)
        cells = ["not run", "–"] if found is None else [mean_text(found[0]), found[1]]
        lines.append([one.claim, f"{one.first} less {one.second}", *cells])
    return table(["claim", "rows", "difference", "here"], lines, words=2)


def ablations(page: Page) -> list[str]:
    """Each claim against ours-short, and against its repetition where there is one: with a single training of
    it, what is chance in that one would count for every row."""
    lines, reasons = [], []
    for one in paper.ABLATIONS:
        found = judge(page, one)
        again = judge(page, one._replace(second=AGAIN)) if one.second == "ours-short" else None
        cells = ["not run", "–", "–"]
        if found is not None:
            verdict = found[1] if again is None or again[1] == found[1] else MIXED
            cells = [mean_text(found[0]), "–" if again is None else mean_text(again[0]), verdict]
            if verdict != "holds":
                reasons.append(f"- {one.claim}: *{verdict}*. Why: {paper.WHY.get(one.claim, 'not known')}.")
        lines.append([one.claim, f"{one.first} less {one.second}", *cells])
    shown = table(["claim", "rows", "difference", f"less {AGAIN}", "here"], lines, words=2)
    apart = judge(page, Ordering("", AGAIN, "ours-short", "toxicity", "above"))
    if apart is not None:
        shown += [
            f"`{AGAIN}` is `ours-short` once more, with the same seed: on a GPU sums are rounded in another "
            "order each time, and what follows grows apart. Their T(d) is "
            f"{mean_text(apart[0])} apart, so a smaller difference of two rows may be chance; *{MIXED}* is "
            "what comes out otherwise against one than against the other.",
            "",
        ]
    return shown + ([*reasons, ""] if reasons else [])


def players(page: Page) -> list[Player]:
    """Every row against the plain defender as a point."""
    points = {}
    for name in ROWS:
        on_the_model = "template" not in ROWS[name] and "model" not in ROWS[name]
        if on_the_model and (found := played(page, name)):
            whole = found["by_turn"][-1]
            points[name] = (found["n"], whole["log_ppl"]["mean"], whole["defender"]["mean"])
    return [
        Player(name, n, x, y, not any(a <= x and b >= y and (a < x or b > y) for _, a, b in points.values()))
        for name, (n, x, y) in points.items()
    ]


def _front(page: Page) -> list[str]:
    points = players(page)
    if not points:
        return NOTHING
    with drawing(page.pictures / "front.svg", width=6.4, height=4.0) as (axis,):
        for place, point in enumerate(points):
            colour, marker = COLOURS[place % 4], MARKERS[place // 4 % 4]
            axis.plot([point.log_ppl], [point.toxicity], linestyle="", color=colour, marker=marker)
        front = sorted((point.log_ppl, point.toxicity) for point in points if point.on_front)
        axis.plot(*zip(*front, strict=True), color="#333333", linestyle=":")
        axis.set_xlabel("log-perplexity of the prompts (left: likelier)")
        axis.set_ylabel("mean toxicity of the defender")
        name_points(axis, {point.name: (point.log_ppl, point.toxicity) for point in points})
    words = "Each row as a point; the dotted line joins those that no other beats in both"
    return page.picture("front.svg", words)


def _transfer(page: Page) -> list[str]:
    grid = {
        "as running text": ("ours-short", "ours-to-chat"),
        "by its template": ("chat-to-plain", "chat-ours"),
        "not at all": ("untuned", "chat-untuned"),
    }
    lines = []
    for trained, names in grid.items():
        cells = []
        for name in names:
            whole = (page.get(name).get("by_turn") or [None])[-1]
            measures = ("defender", "second", "log_ppl")
            cells += ["not run" if whole is None else _spread(whole[one]) for one in measures]
        lines.append([trained, *cells])
    header = ["trained against it", "text: T(d)", "second", "log-perplexity"]
    shown = table([*header, "chat: T(d)", "second", "log-perplexity"], lines)
    return [*shown, *_orderings(page, paper.TRANSFER)]


def _topics(page: Page) -> list[str]:
    lines = [
        [name, *(f"{100 * shares[-1]:.1f}%" for shares in found["topics"].values())]
        for name in MAIN
        if (found := played(page, name))
    ]
    if not lines:
        return NOTHING
    shown = [f"Conversations with a word of the topic by turn {page.size.turns}, by our own word lists.", ""]
    shown += table(["row", "politics", "sex", "profanity"], lines)
    words = page.get("words").get("words", [])
    rows = [[word, str(count), str(untuned), f"{z:.1f}"] for word, count, untuned, z in words]
    return shown + (text_table(["word", "ours", "untuned", "z"], rows) if rows else [])


def _hardened(page: Page) -> list[str]:
    found = page.get("hardened")
    if "updates" not in found:
        return [f"Not run: {found['left_out']}." if "left_out" in found else "Not run.", ""]
    told = f"{found['updates']:,} updates, iteration {found['iterations_kept']} kept."
    for one in found["candidates"]:
        if why := one.get("broken"):
            told += f" Iteration {one['iterations']} broke the model in conversations: {why}."
    if "left_out" in found:
        return [f"Hardened on what ours-short found: {told} Nothing was left to attack.", ""]
    said = (
        f"Hardened on what ours-short found: {told} `after-old` is the old adversary against the hardened "
        "model, `after-ours` a new one that was trained against it."
    )
    return [said, "", *_rows(page, ("ours-short", "after-old", "after-ours"))]


def _speed(page: Page) -> list[str]:
    shown = []
    if found := page.get("speed"):
        speed = found["pairs_per_s"]
        whole, trees, turns = (speed[name] for name in ("batched", "tree by tree", "turn by turn"))
        shown = [
            f"- Pairs a second: {found['trees']} trees in one batch {whole:,.1f}; turn by turn {turns:,.2f} "
            f"({whole / turns:,.1f} times fewer); a tree at a time, the turns of each level together "
            f"{trees:,.2f} ({whole / trees:,.1f} times fewer)."
        ]
    if training := page.get("ours").get("training"):
        shown.append(
            f"- {page.size.steps:,} updates of `ours`, the play of {training['pairs']:,} pairs and the "
            f"measurements between them took {training['seconds']:,.0f} s, beside other rows on the same "
            "device where there were several jobs."
        )
    return [*(shown or ["Not run."]), ""]


def _share(spread: Found | None) -> str:
    if not spread or spread["above"] is None:
        return "–"
    return f"{100 * spread['above']:.1f}% [{100 * spread['low']:.1f}, {100 * spread['high']:.1f}]"


def _spread(spread: Found | None) -> str:
    if not spread or spread["mean"] is None:
        return "–"
    share = "" if spread["above"] is None else f", {100 * spread['above']:.1f}%"
    return f"{spread['mean']:.3f} ± {spread['std']:.3f}{share}"
