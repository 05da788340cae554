"""What a hardening cost, from its summary.json, as rows that the page and the console show: perplexity,
diversity and replies before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backtalk.scorers.cost import Cost
from backtalk.stats import Rate
from backtalk.store.typed import read_record
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
    replies: list[tuple[str, str, str]]
    """(input, reply before, reply after), unselected."""

    @property
    def perplexity(self) -> CostRow:
        return self.rows[0]


def settings_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a hardening without their nesting; a choice is its name."""
    spec = summary.get("spec")
    flat = dict(spec) if isinstance(spec, dict) else {}
    for key, part in list(flat.items()):
        if isinstance(part, dict):
            flat |= {key: part["name"]} if "name" in part else part
    return flat


def bound_of(summary: Mapping[str, Any]) -> float | None:
    """How much perplexity may rise, as a share; None without a bound."""
    settings = settings_of(summary)
    said = str(settings.get("max_ppl_increase"))
    try:
        bound = float(said.removesuffix("%")) / (100 if said.endswith("%") else 1)
    except ValueError:
        return None
    return bound if 0 <= bound < math.inf and settings.get("keep") != "last" else None


def read_cost(summary: Mapping[str, Any]) -> CostRecord | None:
    """None if the summary holds no cost that can be read."""
    try:
        return _record(read_record(Cost, summary.get("cost")), bound_of(summary))
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        return None


def _record(cost: Cost, bound: float | None) -> CostRecord:
    (before, after), (low, high) = cost.perplexity, cost.rise_interval
    limit = "" if bound is None else f"; bound {bound:+.1%}"
    rise = f"{cost.rise:+.1%} (95%: {low:+.1%} to {high:+.1%}){limit}"
    rows = [CostRow("perplexity", f"{before:.2f}", f"{after:.2f}", note=rise)]
    ratios = [Rate.of(hits, cost.pairs) for hits in cost.commonest]
    said_most = [f"{percent(one.rate)} ({percent_range(one.low, one.high)})" for one in ratios]
    rows.append(
        CostRow("max-ratio", said_most[0], said_most[1], percent(cost.real["commonest"] / cost.pairs))
    )
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
