"""How a search splits its queries: pairs to pre-train on, REINFORCE, and re-ranking.

The paper has no budget: it asks 160,000 utterances, trains on as many replies, and asks 200 inputs a target.
A phase that needs fewer queries than planned leaves the rest to the re-ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backtalk.wording import count

PAIRS_SHARE, RL_SHARE = 0.4, 0.3
"""Shares of all queries. The rest is for the re-ranking; what that can't use returns to these two."""
LEAST_PAIRS = 50
"""Fewer pairs can't train a generator."""


@dataclass(frozen=True)
class QueryBudget:
    """The most requests of each phase."""

    total: int
    cases: int
    pairs: int
    rl: int
    n: int
    """Inputs that the re-ranking sends for each case."""

    @property
    def rerank(self) -> int:
        return self.n * self.cases

    def describe(self) -> str:
        """As in "at most 20,000 queries: 8,000 to collect pairs, ..."."""
        phases = [
            (self.pairs, "to collect pairs"),
            (self.rl, "for REINFORCE"),
            (self.rerank, f"for the best of {count(self.n, 'input')} a case"),
            (self.total - self.pairs - self.rl - self.rerank, "not needed"),
        ]
        parts = [f"{amount:,} {purpose}" for amount, purpose in phases if amount]
        return f"at most {self.total:,} queries: {', '.join(parts)}"

    def inputs_each(self, spent: Mapping[str, int], most: int) -> int:
        """N, from what the earlier phases really sent; resuming gives the same number."""
        left = self.total - spent.get("pairs", 0) - spent.get("rl", 0)
        return max(1, min(most, left // max(1, self.cases)))
