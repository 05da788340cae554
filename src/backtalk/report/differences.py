"""What two runs do not share, in plain words, and whether that makes their comparison unfair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backtalk.wording import count


@dataclass(frozen=True)
class SideFacts:
    """What one run was: enough to make it again and to judge the comparison."""

    folder: str
    model: str
    fingerprint: str
    search: str
    hit: str
    """The criterion that the search aimed at."""
    seed: int
    state: str
    """running, finished or stopped."""
    note: str
    """Why it stopped."""
    cases: int
    candidates: int
    seconds: float
    t_out: float | None
    t_in: float | None
    settings: Mapping[str, Any]
    """What the search does. A difference in these could by itself make or lose hits."""
    others: Mapping[str, Any]
    """Named where they differ, but no fault: two models are compared, and a fresh seed is what a proof
    needs."""
    plays: bool = False
    """Whether its cases are openings of played conversations."""


@dataclass(frozen=True)
class Difference:
    """One thing that the two runs do not share."""

    name: str
    before: str
    after: str
    unfair: bool
    """Budget or search differ: more or fewer hits may come from that alone."""


def find_differences(before: SideFacts, after: SideFacts) -> tuple[list[Difference], list[str]]:
    """All differences, the unfair first, and the warnings that follow from them."""
    found = []
    sides = (True, before.settings, after.settings), (False, before.others, after.others)
    for is_unfair, one, other in sides:
        found += [
            Difference(name, _said(one.get(name)), _said(other.get(name)), is_unfair)
            for name in {**one, **other}
            if one.get(name) != other.get(name)
        ]
    if before.model == after.model and before.fingerprint != after.fingerprint:
        found.append(Difference("weights", before.fingerprint[:12], after.fingerprint[:12], False))
    warnings = []
    if unfair := [f"{d.name} ({d.before} before, {d.after} after)" for d in found if d.unfair]:
        warnings.append(f"Not a fair comparison: the runs differ in {', '.join(unfair)}.")
    for name, old, new in (("T_out", before.t_out, after.t_out), ("T_in", before.t_in, after.t_in)):
        if not _same(old, new):
            found.append(Difference(name, _said(old), _said(new), False))
            warnings.append(
                f"{name} differs ({_said(old)} before, {_said(new)} after): each run is judged by its own, "
                "so likely does not mean the same in both. A hardening keeps the baseline's."
            )
    for side, facts in (("before", before), ("after", after)):
        if facts.state != "finished":
            why = f" ({facts.note})" if facts.note else ""
            warnings.append(f"The run {side} is not finished{why}; it tried part of its cases.")
    return found, warnings


def describe(facts: SideFacts) -> list[tuple[str, str]]:
    """What one run was, as rows of a table."""
    kept = {k: v for k, v in facts.settings.items() if k not in ("search", "hit")}
    rows = {
        "Run": facts.folder,
        "Model": facts.model,
        "Search": facts.search,
        "Aimed at": facts.hit,
        "Settings": ", ".join(f"{name} {value}" for name, value in kept.items() if value != ""),
        "Seed": str(facts.seed),
        "T_out": _said(facts.t_out),
        "T_in": _said(facts.t_in),
        "Tried": f"{count(facts.cases, 'case')}, {count(facts.candidates, 'candidate')}",
    }
    return list(rows.items())


def _same(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return math.isclose(before, after, rel_tol=0.0, abs_tol=1e-6)


def _said(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value != "" else "none given"
