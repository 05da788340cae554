"""Two runs over the same cases as one record that console, page and app show.

Cases are paired by id and text, so that each is its own control, and tested with McNemar's exact test. A case
whose search failed in either run is left out: a failure is no fix.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import (
    LIKELIHOOD_KINDS,
    STANDARD,
    TEXT_STANDARD,
    TOXIC_STANDARD,
    Criterion,
    hit_cases,
    parse_criterion,
    tried_cases,
)
from backtalk.report.build import build_case, group_by_case
from backtalk.report.record import CaseRow, RateRow
from backtalk.report.sentences import meaning, outcome
from backtalk.stats import Rate, mcnemar_exact
from backtalk.store.records import finite
from backtalk.types import Case, Finding, Thresholds
from backtalk.wording import count, percent, percent_range

CHANGES = ("remaining", "new", "fixed", "neither")
"""Hit in both runs, after alone, before alone, in none of them; in the order in which they are shown."""
DEFAULT = "io-sample-avg-k1"


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

    def rows(self) -> dict[str, str]:
        """The facts as rows of a table."""
        kept = {k: v for k, v in self.settings.items() if k not in ("search", "hit")}
        return {
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


@dataclass(frozen=True)
class Difference:
    name: str
    before: str
    after: str
    unfair: bool
    """More or fewer hits may come from this difference alone."""


@dataclass(frozen=True)
class Side:
    """One of the two runs, as it was stored."""

    facts: SideFacts
    cases: Sequence[Case]
    findings: Sequence[Finding]
    thresholds: Thresholds
    words: Mapping[str, Sequence[str]]
    """A target's words as the model cuts them, by the text."""


@dataclass(frozen=True)
class Tally:
    """One criterion, or one category, over the paired cases."""

    name: str
    before: RateRow
    after: RateRow
    fixed: int
    remaining: int
    new: int
    p: float
    """McNemar's exact test, two-sided, on `fixed` and `new`."""
    disjoint: bool
    """Whether the two 95% intervals have no rate in common."""
    meaning: str = ""

    @property
    def shares(self) -> str:
        """Both rates with their intervals, as a sentence."""
        before, after = (
            f"{percent(row.rate)} ({percent_range(row.low, row.high)})" for row in (self.before, self.after)
        )
        meet = "do not overlap" if self.disjoint else "overlap"
        return f"Share with 95% interval: {before} before, {after} after; the intervals {meet}."


@dataclass(frozen=True)
class Pair:
    """One case with the best finding of each run."""

    change: str
    """One of CHANGES, by the main criterion."""
    before: CaseRow
    after: CaseRow


@dataclass(frozen=True)
class LeftOut:
    """A case that could not be paired."""

    id: str
    target: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    criterion: str
    """The main one, for the headline, the categories and the lists."""
    headline: str
    before: SideFacts
    after: SideFacts
    warnings: list[str]
    """Unfair budgets, other thresholds, unfinished runs."""
    n: int
    """Paired cases."""
    tallies: list[Tally]
    """By criterion, those that both runs can decide."""
    undecided: list[str]
    """Criteria that one of the runs can't decide."""
    categories: list[Tally]
    pairs: list[Pair]
    """In the order of CHANGES; within one the gravest and likeliest on top."""
    left_out: list[LeftOut]
    differences: list[Difference]
    played: bool = False
    """Both runs played conversations: the cases are harmless openings."""

    @property
    def noun(self) -> str:
        """What to call a case."""
        return "opening" if self.played else "sentence"

    @property
    def main(self) -> Tally:
        return next(tally for tally in self.tallies if tally.name == self.criterion)

    def changed(self, change: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.change == change]

    def as_dict(self) -> dict[str, Any]:
        return dict(finite(asdict(self)))


def build_comparison(before: Side, after: Side, hit: str | None = None) -> Comparison:
    """`hit` names the main criterion; without it the one that both runs aimed at."""
    cases, left_out = pair_cases(before, after)
    ids = {case.id for case in cases}
    before, after = sides = [
        replace(side, findings=[f for f in side.findings if f.case in ids and f.status != "failed"])
        for side in (before, after)
    ]
    played = before.facts.plays and after.facts.plays
    criteria = _criteria(sides, hit, played)
    decided = [c for c in criteria if all(c.decidable(side.thresholds, side.findings) for side in sides)]
    main = _main_criterion(hit, [side.facts.hit for side in sides], decided)
    names = [criterion.name for criterion in decided]
    hits = {c.name: tuple(hit_cases(s.findings, c, s.thresholds) for s in sides) for c in decided}
    tallies = [tally(name, ids, hits[name], meaning(name)) for name in names]
    members: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        members[case.category].add(case.id)
    differences, warnings = find_differences(before.facts, after.facts)
    best_before, best_after = (_best_cases(side, cases, names, main) for side in sides)
    pairs = [Pair(_change(old, new), old, new) for old, new in zip(best_before, best_after, strict=True)]
    return Comparison(
        criterion=main,
        headline=headline(next(t for t in tallies if t.name == main), "opening" if played else "sentence"),
        before=before.facts,
        after=after.facts,
        warnings=warnings,
        n=len(cases),
        tallies=tallies,
        undecided=[criterion.name for criterion in criteria if criterion not in decided],
        categories=[tally(category, of, hits[main]) for category, of in members.items()],
        pairs=sorted(pairs, key=_order),
        left_out=left_out,
        differences=differences,
        played=played,
    )


def _criteria(sides: Sequence[Side], hit: str | None, played: bool) -> list[Criterion]:
    """The standard criteria of such runs, and those that were asked for."""
    aims = [parse_criterion(side.facts.hit) for side in sides]
    by_replies = [aim.kind not in LIKELIHOOD_KINDS for aim in aims]
    likelihoods = all(any("mean" in f.scores for f in side.findings) for side in sides)
    standard = [
        *(STANDARD if likelihoods or not all(by_replies) else ()),
        *(TEXT_STANDARD if any(by_replies) else ()),
    ]
    asked = [*aims, *([parse_criterion(hit)] if hit else [])]
    return list(dict.fromkeys([*(TOXIC_STANDARD if played else standard), *asked]))


def pair_cases(before: Side, after: Side) -> tuple[list[Case], list[LeftOut]]:
    """The cases that both runs tried, as the later run describes them, and the others with the reason."""
    old, new = ({case.id: case for case in side.cases} for side in (before, after))
    tried_before, tried_after = (tried_cases(side.findings) for side in (before, after))
    status_before, status_after = ({f.case: f.status for f in side.findings} for side in (before, after))
    paired: list[Case] = []
    left_out: list[LeftOut] = []
    for case in [*old.values(), *(case for id, case in new.items() if id not in old)]:
        if case.id not in new:
            reason = "only in the run before"
        elif case.id not in old:
            reason = "only in the run after"
        elif new[case.id].text != case.text:
            reason = "its id stands for another sentence in the run after"
        elif case.id not in tried_before:
            reason = f"{_WHY[status_before.get(case.id, '')]} in the run before"
        elif case.id not in tried_after:
            reason = f"{_WHY[status_after.get(case.id, '')]} in the run after"
        else:
            paired.append(new[case.id])
            continue
        left_out.append(LeftOut(case.id, case.text, reason))
    if not paired:
        raise InputError(
            f"{before.facts.folder} and {after.facts.folder} have no case in common that both tried; "
            "compare runs over the same targets (a list that ships is drawn by --seed, a file is not)"
        )
    return paired, left_out


_WHY = {"skipped": "skipped", "failed": "its search failed", "": "not tried"}


def tally(name: str, cases: set[str], hits: Sequence[set[str]], said: str = "") -> Tally:
    """The counts over `cases`; `hits` are the cases that each run hit."""
    before, after = (hit & cases for hit in hits)
    old, new = (Rate.of(len(hits), len(cases)) for hits in (before, after))
    return Tally(
        name=name,
        before=RateRow.of("before", old),
        after=RateRow.of("after", new),
        fixed=len(before - after),
        remaining=len(before & after),
        new=len(after - before),
        p=mcnemar_exact(len(before - after), len(after - before)),
        disjoint=old.high < new.low or new.high < old.low,
        meaning=said,
    )


def headline(main: Tally, noun: str = "sentence") -> str:
    """The result in one sentence."""
    remain = f"{main.remaining} remain{'s' if main.remaining == 1 else ''}"
    new = f"{main.new} {'is' if main.new == 1 else 'are'} new"
    could = outcome(parse_criterion(main.name)).replace("can be", "could be")
    return (
        f"Of {count(main.before.n, noun)} {main.before.hits} {could} before and {main.after.hits} after: "
        f"{main.fixed} fixed, {remain}, {new}; exact McNemar p = {p_value(main.p)}."
    )


def p_value(p: float) -> str:
    """Two digits: "0.031", "2.1e-9"."""
    if p == 0:
        return "0 (below 1e-300)"
    digits, e, exponent = f"{p:.2g}".partition("e")
    return f"{digits}e{int(exponent)}" if e else digits


def _main_criterion(hit: str | None, aims: Sequence[str], decided: Sequence[Criterion]) -> str:
    names = [criterion.name for criterion in decided]
    if hit:
        asked = parse_criterion(hit).name
        if asked not in names:
            raise InputError(f"--hit {asked} can't be decided in both runs; these can: {', '.join(names)}")
        return asked
    shared = [parse_criterion(aims[0]).name] if aims[0] == aims[1] else []
    for name in [*shared, DEFAULT, DEFAULT.removeprefix("i")]:
        if name in names:
            return name
    if not names:
        raise InputError("the two runs have no criterion that both can decide; name one with --hit")
    return names[0]


def _best_cases(side: Side, cases: Sequence[Case], names: Sequence[str], main: str) -> list[CaseRow]:
    by_case = group_by_case(side.findings)
    return [
        build_case(case, by_case[case.id], side.thresholds, names, main, side.words.get(case.text))
        for case in cases
    ]


def _change(before: CaseRow, after: CaseRow) -> str:
    if before.hit:
        return "remaining" if after.hit else "fixed"
    return "new" if after.hit else "neither"


def _order(pair: Pair) -> tuple[int, int, float, str]:
    shown = pair.after if pair.after.hit else pair.before
    chance = -math.inf if shown.log_prob is None else shown.log_prob
    return CHANGES.index(pair.change), -shown.severity, -chance, shown.id


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
        if _text(old) != _text(new):
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


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value != "" else "none given"
