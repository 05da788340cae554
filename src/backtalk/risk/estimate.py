"""The estimate of a run from its stored draws, without a model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.report.risk_record import (
    Bounds,
    Diagnostics,
    Forecast,
    InputRisk,
    PartRisk,
    RiskEstimate,
    TargetRisk,
    number,
)
from backtalk.risk import bounds
from backtalk.risk.bounds import Array
from backtalk.risk.clusters import Clusters, cluster_interval, cluster_sums
from backtalk.risk.learnt import read_learnt
from backtalk.risk.tails import fit_gumbel
from backtalk.specs import command_of
from backtalk.store import Run
from backtalk.store.draws import StoredDraws
from backtalk.types import Case
from backtalk.wording import percent

RISKIEST = 0.01  # share of the inputs whose share of the risk is told
FEW = 30  # draws; an effective size below it makes a normal interval doubtful
LARGE = 0.2  # share of the risk by one draw
INPUTS = 20  # inputs that are shown


@dataclass(frozen=True)
class Draws:
    """The unbroken run of blocks from the first."""

    chance: Array  # (draws, parts)
    log_weight: Array
    source: NDArray[np.uint8]
    group: NDArray[np.int64] | None
    sum_target: Array  # (targets,): of Z
    seconds: float
    inputs: list[dict[str, Any]]

    @property
    def z(self) -> Array:
        """(draws, parts): weight times chance."""
        return self.chance * np.exp(self.log_weight)[:, None]


def stored_draws(run: Run) -> Draws:
    found = list(StoredDraws(run).blocks())
    parts = max(1, len(run.facts["risk"]["parts"]))

    def joined(name: str, empty: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([empty, *(block.arrays[name] for block in found)])

    grouped = bool(found) and "group" in found[0].arrays
    return Draws(
        joined("chance", np.zeros((0, parts))),
        joined("log_weight", np.zeros(0)),
        joined("source", np.zeros(0, np.uint8)),
        joined("group", np.zeros(0, np.int64)) if grouped else None,
        sum((block.arrays["sum_target"] for block in found), np.zeros(len(run.cases))),
        sum(block.seconds for block in found),
        [one for block in found for one in block.facts["inputs"]],
    )


def estimate(run: Run) -> RiskEstimate:
    """The record of a run as it is now; at least one block is done."""
    draws, facts, spec, learnt = stored_draws(run), run.facts["risk"], run.spec, read_learnt(run.folder)
    per, limit, n = float(spec["per"]), learnt.limit, len(draws.chance)
    z = draws.z
    total = z.sum(1)
    clusters = None if draws.group is None else cluster_sums(total, draws.group.tolist())
    risk = bounds_of(total, limit, per, draws.group)
    names, whole = facts["parts"], float(total.sum())
    least = bounds.upper_bound(np.zeros(n if clusters is None else len(clusters.sums)), limit)
    diagnostics = _diagnostics(draws, total, clusters, limit, per)
    return RiskEstimate(
        folder=str(run.folder),
        model=spec["model"],
        hit=spec["hit"],
        counted=facts["counted"],
        served=facts["served"],
        distribution=facts["distribution"],
        unit=facts["unit"],
        per=per,
        risk=risk,
        draws=n,
        planned=facts["draws"],
        conversations=0 if clusters is None or len(clusters.sums) == n else len(clusters.sums),
        limit=limit,
        to_halve=None if clusters is not None else bounds.draws_to_halve(total, limit),
        least_upper=least * per,
        diagnostics=diagnostics,
        parts=[
            PartRisk(name, bounds_of(z[:, place], limit, per, draws.group), _share(z[:, place].sum(), whole))
            for place, name in enumerate(names)
        ]
        if len(names) > 1
        else [],
        targets=_targets(run.cases, draws.sum_target, whole, n, per),
        inputs=_inputs(draws.inputs, whole, {case.id: case.text for case in run.cases}),
        forecasts=_forecasts(draws.chance.sum(1)[draws.source == 0]) if spec["hit"] == "exact" else [],
        proposals=learnt.names,
        warnings=_warnings(run, risk, diagnostics, n, facts["draws"]),
        notes=[*facts["notes"], *learnt.notes],
        run=_run(run, draws.seconds + learnt.seconds),
    )


def bounds_of(z: Array, limit: float, per: float, group: NDArray[np.int64] | None = None) -> Bounds:
    if group is None:
        low, high = bounds.normal_interval(z)
        mean, below = float(np.sort(z).mean()), bounds.lower_bound(z)
        return Bounds(mean * per, below * per, bounds.upper_bound(z, limit) * per, (low * per, high * per))
    clusters = cluster_sums(z, group.tolist())
    low, high = cluster_interval(clusters)
    below = bounds.lower_bound(clusters.sums, sizes=clusters.sizes)
    above = bounds.upper_bound(clusters.sums, limit, sizes=clusters.sizes)
    return Bounds(clusters.estimate() * per, below * per, above * per, (low * per, high * per))


def _diagnostics(
    draws: Draws, total: Array, clusters: Clusters | None, limit: float, per: float
) -> Diagnostics:
    values = total if clusters is None else clusters.sums
    hill, own = bounds.hill_index(values), draws.source == 0
    mixed = not own.all()
    plain = bounds_of(draws.chance.sum(1)[own], 1.0, per) if mixed and own.any() else None
    return Diagnostics(
        bounds.effective_size(values),
        hill if math.isfinite(hill) else None,
        bounds.largest_share(values),
        _top_share(draws, total),
        plain,
        int(own.sum()) if mixed else 0,
    )


def _top_share(draws: Draws, total: Array) -> float:
    """The share of the risk by the riskiest 1% of inputs, by their own probability."""
    order = np.argsort(-draws.chance.sum(1), kind="stable")
    weight = np.exp(draws.log_weight)[order].cumsum()
    inside = weight <= RISKIEST * max(weight[-1], 1e-300)
    return _share(total[order][inside].sum(), total.sum())


def _targets(cases: Sequence[Case], sums: Array, whole: float, n: int, per: float) -> list[TargetRisk]:
    order = np.argsort(-sums, kind="stable")
    return [
        TargetRisk(cases[i].text, cases[i].category, float(sums[i]) / n * per, _share(sums[i], whole))
        for i in order
    ]


def _inputs(rows: Sequence[dict[str, Any]], whole: float, texts: dict[str, str]) -> list[InputRisk]:
    """The inputs that carry most; an input that was drawn often carries the sum."""
    carried: dict[str, float] = defaultdict(float)
    for row in rows:
        carried[row["text"]] += row["z"]
    best = {row["text"]: row for row in rows}
    order = sorted(carried, key=lambda text: (-carried[text], text))[:INPUTS]
    return [
        InputRisk(
            text,
            _share(carried[text], whole),
            best[text]["log_chance"],
            best[text]["said"] or texts.get(best[text]["target"], ""),
        )
        for text in order
        if carried[text] > 0
    ]


def _forecasts(chances: Array) -> list[Forecast]:
    """The worst input among 10, 100 and 1,000 times as many plain draws."""
    with np.errstate(divide="ignore"):
        tail = fit_gumbel(np.log(chances))
    volumes = [] if tail is None else [len(chances) * times for times in (10, 100, 1000)]
    return [Forecast(turns, tail.largest(turns)) for turns in volumes if tail is not None]


def _warnings(run: Run, risk: Bounds, seen: Diagnostics, n: int, planned: int) -> list[str]:
    found = []
    if n < planned:
        why = f": {run.note}" if run.note else ""
        found.append(
            f"{n:,} of {planned:,} draws were made{why}; the normal interval is for a number that was fixed "
            "beforehand."
        )
    if risk.estimate == 0:
        return [
            *found,
            "No draw showed any risk, so the lower bound is 0 and the normal interval says nothing.",
        ]
    if seen.effective_size < FEW:
        found.append(
            f"The draws are worth only {seen.effective_size:.0f} equal ones: the normal interval is doubtful."
        )
    if seen.hill_index is not None and seen.hill_index < 2:
        found.append(
            f"The largest draws fall off slowly (Hill index {seen.hill_index:.1f}; below 2 the variance is "
            "infinite): the normal interval is doubtful."
        )
    if seen.largest_share > LARGE:
        found.append(f"One draw carries {percent(seen.largest_share)} of the estimate.")
    plain = seen.plain
    if plain is not None:
        ends = plain.normal95, risk.normal95
        if plain.lower > risk.normal95[1] or (plain.estimate > 0 and ends[0][0] > ends[1][1]):
            found.append(
                f"The plain draws alone say {number(plain.estimate)}, above the normal interval: the "
                "proposals miss a part of the risk."
            )
    return found


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def _run(run: Run, seconds: float) -> dict[str, Any]:
    keys = ("fingerprint", "versions", "hardware", "scorer", "template", "system", "dtype", "in_memory")
    return {
        "run": run.folder.name,
        "command": command_of(run.spec, run.chosen, "risk"),
        "seed": run.spec["seed"],
        "state": run.state,
        "stopped": run.note if run.state == "stopped" else None,
        "seconds": round(seconds, 3),
        **{key: run.facts[key] for key in keys if run.facts.get(key)},
    }
