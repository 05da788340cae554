"""What two runs do not share, and whether that makes their comparison unfair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backtalk.wording import count


@dataclass(frozen=True)
class SideFacts:
    """Facts about one of two compared runs."""

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
    """Settings of the search. A difference in these could by itself make or lose hits."""
    others: Mapping[str, Any]
    """Settings that may differ: two models are compared, and a proof needs a fresh seed."""
    plays: bool = False
    """Whether its cases are openings of played conversations."""

    def rows(self) -> list[tuple[str, str]]:
        """The facts as rows of a table."""
        kept = {k: v for k, v in self.settings.items() if k not in ("search", "hit")}
        rows = {
            "Run": self.folder,
            "Model": self.model,
            "Search": self.search,
            "Aimed at": self.hit,
            "Settings": ", ".join(f"{name} {value}" for name, value in kept.items() if value != ""),
            "Seed": str(self.seed),
            "T_out": _text(self.t_out),
            "T_in": _text(self.t_in),
            "Tried": f"{count(self.cases, 'case')}, {count(self.candidates, 'candidate')}",
        }
        return list(rows.items())


@dataclass(frozen=True)
class Difference:
    name: str
    before: str
    after: str
    unfair: bool
    """More or fewer hits may come from this difference alone."""


def find_differences(before: SideFacts, after: SideFacts) -> tuple[list[Difference], list[str]]:
    """All differences, the unfair first, and warnings about them."""
    found = []
    sides = (True, before.settings, after.settings), (False, before.others, after.others)
    for is_unfair, one, other in sides:
        found += [
            Difference(name, _text(one.get(name)), _text(other.get(name)), is_unfair)
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
            found.append(Difference(name, _text(old), _text(new), False))
            warnings.append(
                f"{name} differs ({_text(old)} before, {_text(new)} after): each run is judged by its own, "
                "so likely does not mean the same in both. A hardening keeps the baseline's."
            )
    for side, facts in (("before", before), ("after", after)):
        if facts.state != "finished":
            why = f" ({facts.note})" if facts.note else ""
            warnings.append(f"The run {side} is not finished{why}; it tried part of its cases.")
    return found, warnings


def _same(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is after
    return math.isclose(before, after, rel_tol=0.0, abs_tol=1e-6)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value != "" else "none given"
