"""What two runs do not share, in plain words, and whether that makes their comparison unfair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backtalk.spec import LEARNT
from backtalk.wording import count

BUDGET = ("length", "top", "sweeps", "restarts", "relax_steps")
SEARCH = (
    *("search", "hit", "lambda_in", "max_ppl", "as_published", "all_words", "stop_at_hit", "with_unknown"),
    *("precision", "relax_space", "relax_lambda", "relax_lr"),
)
"""What the search does. A difference in these or in the budget could by itself make or lose hits."""
NO_MATTER = ("openings", "second_scorer", "control", "checkpoint_s")
PLAYING = tuple(name for name in LEARNT if name not in NO_MATTER)
"""The same of a learnt adversary. Cases are paired, so it is no matter where their openings lie."""
EXPECTED = (
    *("model", "seed", "targets", "limit", "reference", "device", "template", "system", "dtype", "max_reply"),
    *("prefix", "suffix", "language_model", "scorer"),
)
"""Named where they differ, but no fault: two models are compared, and a fresh seed is what a proof needs."""


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
    """The spec as stored, with the defaults of keys that an older run lacks."""


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
    searches = {before.search, after.search}
    found = []
    for name in (*SEARCH, *BUDGET, *PLAYING, *EXPECTED):
        if not _matters(name, searches):
            continue
        old, new = before.settings.get(name), after.settings.get(name)
        if old != new:
            found.append(Difference(name, _said(old), _said(new), name not in EXPECTED))
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
    kept = {
        k: v for k, v in facts.settings.items() if k in (*BUDGET, *PLAYING) and _matters(k, {facts.search})
    }
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


def _matters(name: str, searches: set[str]) -> bool:
    """relax and ast have settings of their own, and do not use those of a search over words."""
    if name in LEARNT:
        return "ast" in searches
    if searches == {"ast"}:
        return name in ("search", "hit", *EXPECTED)
    if name.startswith("relax_"):
        return "relax" in searches
    return name not in {"top", "sweeps", "stop_at_hit", "with_unknown", "precision"} or searches != {"relax"}


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
