"""How a budget of queries is split: pairs to pre-train on, REINFORCE, and the re-ranking by really asking.

The paper has no budget: it asks 160,000 utterances, trains on as many replies, and asks 200 inputs a target.
What is planned is a bound: phases that need less leave the rest to the re-ranking, whose N shrinks to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backtalk.wording import count

PAIRS_SHARE = 0.4
RL_SHARE = 0.3
"""Of all queries; the rest is for the re-ranking, and what that can't use comes back to these two."""
LEAST_PAIRS = 50
"""Fewer than these are nothing to train on."""


@dataclass(frozen=True)
class Plan:
    """The most requests of each phase."""

    total: int
    cases: int
    pairs: int
    rl: int
    n: int
    """Inputs really asked for each case."""

    @property
    def rerank(self) -> int:
        return self.n * self.cases

    def words(self) -> str:
        """For the line before the work: "20,000 queries at most: 8,000 for pairs, ..."."""
        phases = [
            (self.pairs, f"{self.pairs:,} to gather pairs"),
            (self.rl, f"{self.rl:,} for REINFORCE"),
            (self.rerank, f"{self.rerank:,} for the best of {count(self.n, 'input')} a case"),
        ]
        unused = self.total - self.pairs - self.rl - self.rerank
        said = [words for amount, words in phases if amount] + ([f"{unused:,} not needed"] if unused else [])
        return f"at most {self.total:,} queries: {', '.join(said)}"

    def inputs_each(self, spent: Mapping[str, int], most: int) -> int:
        """N, from what the phases before the re-ranking really sent: the same whenever it is asked."""
        left = self.total - spent.get("pairs", 0) - spent.get("rl", 0)
        return max(1, min(most, left // max(1, self.cases)))
