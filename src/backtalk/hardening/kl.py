"""The weight of the KL term, adapted so that training spends the perplexity that it is allowed.

With a fixed weight perplexity rises in the first iteration, which has most hits, and falls back afterwards:
what was allowed stays unspent, and hits come back. After each iteration the weight is multiplied by how much
of the allowance is spent: below it the weight falls, above it rises. Where too much is spent the next
iteration begins with updates that only bring the model's replies back: without hits there would be none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from backtalk.hardening.selection import Candidate

SPENT = 0.9
"""The share of the allowed rise that is aimed at; the rest is for what the next iteration does."""
STEP = 2.0
"""The most by which one iteration changes the weight, up or down."""
LEAST, MOST = 0.1, 1000.0

HEALS, MOST_HEALS = 10, 100
"""Such updates for each allowance that is spent over the first, and at most."""


def adapted_kl(first: float, rise: float, candidates: Sequence[Candidate]) -> float:
    """The weight after these candidates, of which the first is the original model; `rise` is what perplexity
    is allowed. It depends on them alone, so that a resumed training has the same one."""
    weight, base = first, candidates[0].perplexity
    for one in candidates[1:]:
        change = min(STEP, max(1 / STEP, _spent(one, base, rise)))
        weight = min(MOST, max(LEAST, weight * change))
    return weight


def needed_heals(rise: float, candidates: Sequence[Candidate]) -> int:
    """How many updates the last candidate needs."""
    over = _spent(candidates[-1], candidates[0].perplexity, rise) - 1
    return min(MOST_HEALS, math.ceil(HEALS * over)) if over > 0 else 0


def _spent(one: Candidate, base: float, rise: float) -> float:
    """How much of the rise that is aimed at."""
    return (one.perplexity / base - 1) / max(SPENT * rise, 1e-3)
