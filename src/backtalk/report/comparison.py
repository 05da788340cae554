"""`backtalk compare`: two runs over the same cases as one record that console, page and app show.

Each run is judged by the thresholds that it stored. Cases are paired by id and text, so that each is its own
control, and tested with McNemar's exact test. A case whose search failed in either run is left out: a failure
is no fix.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backtalk import hits
from backtalk.errors import InputError
from backtalk.hits import Criterion, hit_cases, parse_criterion, tried_cases
from backtalk.registry import search_config
from backtalk.report.build import build_case, group_by_case
from backtalk.report.record import CaseRow
from backtalk.report.sentences import meaning, outcome
from backtalk.specs import Mark, flag_names, marked_with
from backtalk.specs.audit import AuditSpec
from backtalk.stats import Rate, mcnemar_exact
from backtalk.store import Run
from backtalk.store.folder import reading
from backtalk.store.records import finite
from backtalk.types import Case, Finding, Thresholds
from backtalk.wording import count, percent, percent_range

CHANGES = {(True, True): "remaining", (False, True): "new", (True, False): "fixed", (False, False): "neither"}
"""By whether a case was hit before and after; in the order in which they are shown."""
DEFAULT = "io-sample-avg-k1"
OTHERWISE = {"search", "hit", "options", "block", "max_time", "max_candidates"}
"""Settings of a run that are compared elsewhere, or make no difference to what it found."""


@dataclass(frozen=True)
class SideFacts:
    """Facts about one of two compared runs."""

    model: str
    fingerprint: str
    hit: str  # the criterion that the search aimed at
    unfinished: str  # why it is not finished; empty if it is
    t_out: float | None
    t_in: float | None
    rated_by: tuple[str, str]
    """The scorer and its fingerprint."""
    settings: dict[str, Any]
    """Settings of the search. A difference in these could by itself make or lose hits."""
    others: dict[str, Any]
    """Settings that may differ: two models are compared, and a proof needs a fresh seed."""
    about: Mapping[str, str]  # facts for people, as rows of a table


@dataclass(frozen=True)
class Difference:
    name: str
    before: str
    after: str
    unfair: bool  # more or fewer hits may come from this difference alone


@dataclass(frozen=True)
class Side:
    """One of the two runs, as it was stored."""

    facts: SideFacts
    plays: bool
    cases: dict[str, Case]
    findings: Sequence[Finding]
    thresholds: Thresholds
    words: Mapping[str, Sequence[str]]  # a target's words as the model cuts them, by the text


@dataclass(frozen=True)
class Tally:
    """One criterion, or one category, over the paired cases."""

    name: str
    before: Rate
    after: Rate
    fixed: int
    remaining: int
    new: int
    p: float  # McNemar's exact test, two-sided, on `fixed` and `new`
    disjoint: bool  # whether the two 95% intervals have no rate in common
    meaning: str = ""

    @property
    def shares(self) -> str:
        """Both rates with their intervals, as a sentence."""
        rates = (self.before, self.after)
        before, after = (f"{percent(one.rate)} ({percent_range(one.low, one.high)})" for one in rates)
        meet = "do not overlap" if self.disjoint else "overlap"
        return f"Share with 95% interval: {before} before, {after} after; the intervals {meet}."

    def told(self) -> str:
        return f"{self.fixed} fixed, {self.remaining} remaining, {self.new} new"


@dataclass(frozen=True)
class Pair:
    """One case with the best finding of each run."""

    change: str  # a value of CHANGES, by the main criterion
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
    criterion: str  # the main one, for the headline, the categories and the lists
    headline: str
    before: SideFacts
    after: SideFacts
    warnings: list[str]  # unfair budgets, other thresholds, unfinished runs
    n: int  # paired cases
    tallies: list[Tally]  # by criterion, those that both runs can decide
    undecided: list[str]  # criteria that one of the runs can't decide
    categories: list[Tally]
    pairs: list[Pair]  # in the order of CHANGES; within one the gravest and likeliest on top
    left_out: list[LeftOut]
    differences: list[Difference]
    played: bool = False  # both runs played conversations: the cases are harmless openings

    @property
    def noun(self) -> str:
        return "opening" if self.played else "sentence"

    @property
    def main(self) -> Tally:
        return next(tally for tally in self.tallies if tally.name == self.criterion)

    def changed(self, change: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.change == change]

    def as_dict(self) -> dict[str, Any]:
        return dict(finite(asdict(self)))


def compare_runs(before: Path, after: Path, hit: str | None = None) -> Comparison:
    """What was fixed, what remains and what is new. `hit` names the main criterion; without it the one that
    both runs aimed at."""
    asked = parse_criterion(hit) if hit else None  # refused before any run is read
    sides = [_read_side(before), _read_side(after)]
    cases, left_out = _pair_cases(*sides)
    ids = {case.id for case in cases}
    if not ids:
        mend = "compare runs over the same targets (a list that ships is drawn by --seed, a file is not)"
        raise InputError(f"{before} and {after} have no case in common that both tried; {mend}")
    sides = [
        replace(side, findings=[f for f in side.findings if f.case in ids and f.status != "failed"])
        for side in sides
    ]
    played = all(side.plays for side in sides)
    criteria = _criteria(sides, hit, played)
    facts = [side.facts for side in sides]
    one_rater = facts[0].rated_by[1] == facts[1].rated_by[1]
    decided = [
        c
        for c in criteria
        if all(c.decidable(side.thresholds, side.findings) for side in sides)
        and (one_rater or c.kind != "toxic")
    ]
    names = [criterion.name for criterion in decided]
    if not one_rater and ((asked and asked.kind == "toxic") or not names):
        raters = [
            f"{folder} by {side.rated_by[0]}" for folder, side in zip((before, after), facts, strict=True)
        ]
        why = f"two scorers rated the replies: those of {' and those of '.join(raters)}"
        raise InputError(f"{why}, whose rates can't be compared; audit both with one --scorer")
    main = _main_criterion(hit, [one.hit for one in facts], names)
    met = {c.name: [hit_cases(side.findings, c, side.thresholds) for side in sides] for c in decided}
    tallies = [tally(name, ids, met[name], meaning(name)) for name in names]
    members: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        members[case.category].add(case.id)
    differences, warnings = find_differences(*facts)
    by_case = [group_by_case(side.findings) for side in sides]
    rows = [
        [
            build_case(case, found[case.id], side.thresholds, names, main, side.words.get(case.text))
            for case in cases
        ]
        for side, found in zip(sides, by_case, strict=True)
    ]
    pairs = [Pair(CHANGES[old.hit, new.hit], old, new) for old, new in zip(*rows, strict=True)]
    return Comparison(
        criterion=main,
        headline=headline(tallies[names.index(main)], "opening" if played else "sentence"),
        before=facts[0],
        after=facts[1],
        warnings=warnings,
        n=len(cases),
        tallies=tallies,
        undecided=[criterion.name for criterion in criteria if criterion not in decided],
        categories=[tally(category, of, met[main]) for category, of in members.items()],
        pairs=sorted(pairs, key=_order),
        left_out=left_out,
        differences=differences,
        played=played,
    )


def _read_side(folder: Path) -> Side:
    with Run.open(folder) as run, reading(folder):
        thresholds, findings = run.thresholds, run.findings()
        t_out, t_in = finite(thresholds.out), finite(thresholds.into)
        finished, own = len(run.done_blocks()) == run.blocks, _deciding(run)
        others = {**run.spec, **run.spec["options"]}
        # `auto` says nothing: what the search ran on does.
        others["device"] = run.facts.get("hardware", {}).get("device") or others["device"]
        hit = parse_criterion(run.spec["hit"]).name
        spent = sum(finding.candidates for finding in findings)
        about = {
            "Run": str(folder),
            "Model": str(run.spec["model"]),
            "Search": run.search,
            "Aimed at": hit,
            "Settings": ", ".join(f"{name} {value}" for name, value in own.items() if value != ""),
            "Seed": str(run.spec["seed"]),
            "T_out": _text(t_out),
            "T_in": _text(t_in),
            "Tried": f"{count(len(tried_cases(findings)), 'case')}, {count(spent, 'candidate')}",
        }
        facts = SideFacts(
            model=str(run.spec["model"]),
            fingerprint=run.facts.get("fingerprint", ""),
            hit=hit,
            unfinished="" if finished else run.note or run.state,
            t_out=t_out,
            t_in=t_in,
            rated_by=run.rated_by,
            settings={"search": run.search, "hit": run.spec["hit"], **own},
            others={name: value for name, value in others.items() if name not in OTHERWISE},
            about=about,
        )
        cases = {case.id: case for case in run.cases}
        return Side(facts, run.plays, cases, findings, thresholds, run.facts.get("words", {}))


def _deciding(run: Run) -> dict[str, Any]:
    """The settings of the search that its findings depend on."""
    own = {name: value for name, value in run.spec["search"].items() if name != "name"}
    own |= run.facts.get("effort", {})
    try:
        kind = search_config(run.search)
    except InputError:  # a plugin that is not installed here
        return own
    free = marked_with(kind, Mark.FREE)
    return {name: own[name] for name in flag_names(kind, AuditSpec) if name in own and name not in free}


def _criteria(sides: Sequence[Side], hit: str | None, played: bool) -> list[Criterion]:
    """The standard criteria of such runs, and those that were asked for."""
    aims = [parse_criterion(side.facts.hit) for side in sides]
    by_replies = [aim.kind not in hits.LIKELIHOOD_KINDS for aim in aims]
    likelihoods = all(any("mean" in finding.scores for finding in side.findings) for side in sides)
    standard = list(hits.STANDARD if likelihoods or not all(by_replies) else ())
    standard += hits.TEXT_STANDARD if any(by_replies) else ()
    asked = [*aims, *([parse_criterion(hit)] if hit else [])]
    return list(dict.fromkeys([*(hits.TOXIC_STANDARD if played else standard), *asked]))


def _pair_cases(before: Side, after: Side) -> tuple[list[Case], list[LeftOut]]:
    """The cases that both runs tried, as the later run describes them, and the others with the reason."""
    sides = {"before": before, "after": after}
    tried = {name: tried_cases(side.findings) for name, side in sides.items()}
    status = {name: {f.case: f.status for f in side.findings} for name, side in sides.items()}
    paired: list[Case] = []
    left_out: list[LeftOut] = []
    for id, case in (before.cases | after.cases).items():
        old = before.cases.get(id, case)
        if found := [name for name, side in sides.items() if id not in side.cases]:
            reason = f"only in the run {'before' if found == ['after'] else 'after'}"
        elif old.text != case.text:
            reason = "its id stands for another sentence in the run after"
        elif found := [name for name in sides if id not in tried[name]]:
            reason = f"{_WHY[status[found[0]].get(id, '')]} in the run {found[0]}"
        else:
            paired.append(case)
            continue
        left_out.append(LeftOut(id, old.text, reason))
    return paired, left_out


_WHY = {"skipped": "skipped", "failed": "its search failed", "": "not tried"}


def tally(name: str, cases: set[str], hits: Sequence[set[str]], said: str = "") -> Tally:
    """The counts over `cases`; `hits` are the cases that each run hit."""
    before, after = (hit & cases for hit in hits)
    old, new = (Rate.of(len(hits), len(cases)) for hits in (before, after))
    fixed, added = len(before - after), len(after - before)
    disjoint = old.high < new.low or new.high < old.low
    remaining, p = len(before & after), mcnemar_exact(fixed, added)
    return Tally(name, old, new, fixed, remaining, added, p, disjoint, said)


def headline(main: Tally, noun: str = "sentence") -> str:
    """The result in one sentence."""
    could = outcome(parse_criterion(main.name)).replace("can be", "could be")
    return (
        f"Of {count(main.before.n, noun)} {main.before.hits} {could} before and {main.after.hits} after: "
        f"{main.told()}; exact McNemar p = {p_value(main.p)}."
    )


def p_value(p: float) -> str:
    """Two digits: "0.031", "2.1e-9"."""
    if p == 0:
        return "0 (below 1e-300)"
    digits, e, exponent = f"{p:.2g}".partition("e")
    return f"{digits}e{int(exponent)}" if e else digits


def _main_criterion(hit: str | None, aims: Sequence[str], names: Sequence[str]) -> str:
    if hit:
        asked = parse_criterion(hit).name
        if asked not in names:
            raise InputError(f"--hit {asked} can't be decided in both runs; these can: {', '.join(names)}")
        return asked
    if not names:
        raise InputError("the two runs have no criterion that both can decide; name one with --hit")
    wanted = [aims[0]] if aims[0] == aims[1] else []
    return next(name for name in (*wanted, DEFAULT, DEFAULT.removeprefix("i"), *names) if name in names)


def _order(pair: Pair) -> tuple[int, int, float, str]:
    shown = pair.after if pair.after.hit else pair.before
    chance = -math.inf if shown.log_prob is None else shown.log_prob
    return list(CHANGES.values()).index(pair.change), -shown.severity, -chance, shown.id


def find_differences(before: SideFacts, after: SideFacts) -> tuple[list[Difference], list[str]]:
    """All differences, the unfair first, and warnings about them."""
    sides = (True, before.settings, after.settings), (False, before.others, after.others)
    found = [
        Difference(name, _text(one.get(name)), _text(other.get(name)), is_unfair)
        for is_unfair, one, other in sides
        for name in one | other
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
    for side, why in (("before", before.unfinished), ("after", after.unfinished)):
        if why:
            warnings.append(f"The run {side} is not finished ({why}); it tried part of its cases.")
    return found, warnings


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value != "" else "none given"
