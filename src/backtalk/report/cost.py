"""What a hardening cost, from its summary.json, as rows that the page and the console show: perplexity,
diversity and replies before and after."""

from dataclasses import dataclass

from backtalk.scorers.cost import Cost
from backtalk.stats import Rate
from backtalk.wording import count, percent, percent_range

PLAIN = {
    "ent_2": "Ent-2",
    "ent_3": "Ent-3",
    "distinct_1": "distinct-1",
    "distinct_2": "distinct-2",
    "length": "words a reply",
    "bleu_4": "BLEU-4",
}


@dataclass(frozen=True)
class CostRow:
    name: str
    before: str
    after: str
    real: str = ""  # of the pairs' own replies
    note: str = ""


@dataclass(frozen=True)
class CostRecord:
    """The cost of one hardening in words."""

    pairs: int
    rows: list[CostRow]
    said: list[tuple[str, str]]  # (whose, the reply that it gives most often)
    replies: list[tuple[str, str, str]]  # (input, reply before, reply after), unselected

    @property
    def perplexity(self) -> CostRow:
        return self.rows[0]


def tell_cost(cost: Cost, bound: float | None) -> CostRecord:
    """`bound` is how much perplexity may rise, as a share; None without a bound."""
    (before, after), (low, high) = cost.perplexity, cost.rise_interval
    limit = "" if bound is None else f"; bound {bound:+.1%}"
    rise = f"{cost.rise:+.1%} (95%: {low:+.1%} to {high:+.1%}){limit}"
    rows = [CostRow("perplexity", f"{before:.2f}", f"{after:.2f}", note=rise)]
    ratios = [Rate.of(hits, cost.pairs) for hits in cost.commonest]
    most = [f"{percent(one.rate)} ({percent_range(one.low, one.high)})" for one in ratios]
    rows.append(CostRow("max-ratio", most[0], most[1], percent(cost.real["commonest"] / cost.pairs)))
    for key, name in PLAIN.items():
        if (both := getattr(cost, key)) is not None:
            real = f"{cost.real[key]:.3f}" if key in cost.real else ""
            rows.append(CostRow(name, f"{both[0]:.3f}", f"{both[1]:.3f}", real))
    if cost.bleu_4 is None:
        rows.append(CostRow("BLEU-4", "", "", note="needs sacrebleu"))
    same = Rate.of(cost.same_replies, cost.pairs)
    within = f"95%: {percent_range(same.low, same.high)}"
    rows.append(CostRow("same greedy reply", "", percent(same.rate), note=within))
    if cost.lists:
        within = f"of {count(cost.lists, 'input')}"
        rows.append(CostRow("10-best overlap", "", percent(cost.overlap), note=within))
    said = [*zip(("before", "after"), cost.most_said, strict=True), ("real replies", cost.real_most_said)]
    return CostRecord(cost.pairs, rows, said, cost.side_by_side)
