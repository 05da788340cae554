"""Two estimates on common draws: the same inputs with the same weights, so that most of the randomness leaves
the ratio of the two risks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backtalk.errors import InputError
from backtalk.report.risk_record import RiskChange, RiskComparison
from backtalk.risk.bounds import Array
from backtalk.risk.clusters import cluster_sums
from backtalk.risk.estimate import Draws, bounds_of, estimate, stored_draws
from backtalk.risk.ratio import ratio_interval
from backtalk.store import Run


def compare_risks(before: Path, after: Path) -> RiskComparison:
    """The ratio of the risks, whole and by category; of the draws that both have."""
    with Run.open(before, verb="risk") as first, Run.open(after, verb="risk") as second:
        found = estimate(first), estimate(second)
        draws = stored_draws(first), stored_draws(second)
        parts = first.facts["risk"]["parts"], second.facts["risk"]["parts"]
        _check_common(first, second, *draws)
    n = min(len(own.chance) for own in draws)
    per, names = found[0].per, parts[0] if parts[0] == parts[1] and len(parts[0]) > 1 else []
    columns = [("", *(own.z[:n].sum(1) for own in draws))]
    columns += [(name, *(own.z[:n, place] for own in draws)) for place, name in enumerate(names)]
    limit = max(one.limit for one in found)
    return RiskComparison(
        before=found[0],
        after=found[1],
        draws=n,
        changes=[_change(name, old, new, draws[0], limit, per) for name, old, new in columns],
    )


def _change(name: str, old: Array, new: Array, draws: Draws, limit: float, per: float) -> RiskChange:
    group = None if draws.group is None else draws.group[: len(old)]
    risks = [bounds_of(one, limit, per, group) for one in (old, new)]
    if group is not None:
        old, new = (cluster_sums(one, group.tolist()).sums for one in (old, new))
    ratio = ratio_interval(old, new)
    return RiskChange(name, risks[0], risks[1], ratio.estimate, ratio.low, ratio.high)


def _check_common(first: Run, second: Run, before: Draws, after: Draws) -> None:
    """Refuses estimates over other inputs or of other events."""
    where = f"{first.folder} and {second.folder}"
    if first.spec["hit"] != second.spec["hit"]:
        hits = f"{first.spec['hit']} and {second.spec['hit']}"
        raise InputError(f"{where} count other replies ({hits}); estimate both with one --hit")
    texts = [sorted((case.id, case.text) for case in run.cases) for run in (first, second)]
    if texts[0] != texts[1]:
        raise InputError(f"{where} count other sentences; estimate both with one list")
    n = min(len(before.chance), len(after.chance))
    same = np.array_equal(before.source[:n], after.source[:n])
    weights = np.allclose(before.log_weight[:n], after.log_weight[:n], rtol=1e-3, atol=1e-4)
    inputs = first.facts["depends_on"]["inputs"] == second.facts["depends_on"]["inputs"]
    if not (same and weights and inputs and first.spec["seed"] == second.spec["seed"]):
        mend = "use one --seed, one --inputs or --input-model, and --proposal none or the first run"
        raise InputError(f"{where} have no common draws; {mend}")
