"""What a hardening cost, from its summary.json, as rows that a page shows: perplexity, diversity and replies
before and after. Pure; the numbers are `hardening/cost`'s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
MEANING = {
    "perplexity": "how surprised the model is by real replies; lower is better",
    "max-ratio": "the share of its most frequent reply; lower is more varied",
    "Ent-2": "entropy of pairs of words; higher is more varied",
    "Ent-3": "of three words",
    "distinct-1": "different words a word said",
    "distinct-2": "different pairs of words a pair said",
    "BLEU-4": "likeness to the real replies",
}


@dataclass(frozen=True)
class CostRow:
    name: str
    before: str
    after: str
    real: str = ""
    """Of the pairs' own replies."""
    note: str = ""


@dataclass(frozen=True)
class CostRecord:
    """The cost of one hardening in words."""

    pairs: int
    rows: list[CostRow]
    said: list[tuple[str, str]]
    """(whose, the reply that it gives most often)."""
    replies: list[tuple[str, str, str]] = field(default_factory=list)
    """(input, reply before, reply after), unselected."""


def read_cost(summary: Mapping[str, Any]) -> CostRecord | None:
    """None where the summary tells no cost, or not as one of ours does."""
    try:
        return _cost(summary["cost"], summary.get("spec", {}).get("max_ppl_increase"))
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError):
        return None


def _cost(cost: Mapping[str, Any], bound: Any) -> CostRecord:
    pairs, real = int(cost["pairs"]), cost["real"]
    before, after = (float(value) for value in cost["perplexity"])
    low, high = (float(value) for value in cost["rise_interval"])
    limit = f"; bound {float(bound):+.0%}" if isinstance(bound, int | float) and math.isfinite(bound) else ""
    rise = f"{after / before - 1:+.1%} (95%: {low:+.1%} to {high:+.1%}){limit}"
    rows = [CostRow("perplexity", f"{before:.2f}", f"{after:.2f}", note=rise)]
    ratios = [Rate.of(int(hits), pairs) for hits in cost["commonest"]]
    said_most = [f"{percent(one.rate)} ({percent_range(one.low, one.high)})" for one in ratios]
    real_ratio = percent(float(real["commonest"]) / pairs)
    rows.append(CostRow("max-ratio", said_most[0], said_most[1], real_ratio))
    for key, name in PLAIN.items():
        if cost.get(key) is not None:
            own = f"{float(real[key]):.3f}" if key in real else ""
            old, new = (f"{float(value):.3f}" for value in cost[key])
            rows.append(CostRow(name, old, new, own))
    same = Rate.of(int(cost["same_replies"]), pairs)
    within = f"95%: {percent_range(same.low, same.high)}"
    rows.append(CostRow("same greedy reply", "", percent(same.rate), note=within))
    lists = f"of {count(int(cost['lists']), 'input')}"
    rows.append(CostRow("10-best overlap", "", percent(float(cost["overlap"])), note=lists))
    said = [
        *zip(("before", "after"), cost["most_said"], strict=True),
        ("real replies", cost["real_most_said"]),
    ]
    return CostRecord(
        pairs=pairs,
        rows=rows,
        said=[(whose, str(text)) for whose, text in said],
        replies=[(str(given), str(old), str(new)) for given, old, new in cost["side_by_side"]],
    )
