"""From what a run stored to one record that every face shows. Pure: no model, no files, no clock.

The record holds the sentences whole; masking is the faces' work. Numbers that are not finite become None, so
that the record is JSON as it stands.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backtalk.data.tokenise import RECIPES
from backtalk.hits import TRIED, parse_criterion
from backtalk.report.explain import headline, meaning
from backtalk.report.replies import Replies, build_replies
from backtalk.report.spread import BudgetPoint, Cloud, cloud_of, hits_by_budget
from backtalk.stats import Rate
from backtalk.types import ADVERSARY, DEFENDER, Finding, Target, Thresholds

EXACT = parse_criterion("exact")
END = "(end)"
"""How the end-of-turn token is labelled."""
STARTS_AT_RANDOM = ("gibbs", "gcg")
"""Searches whose first loss is that of an input drawn at random."""
MOST_WORDS = 400
"""A chart of more bars is no picture."""


@dataclass(frozen=True)
class RateRow:
    """How many cases meet a criterion, with the Wilson 95% interval."""

    criterion: str
    hits: int
    n: int
    rate: float
    low: float
    high: float
    meaning: str = ""


@dataclass(frozen=True)
class CategoryRows:
    """The rates of one category, in the order of the report's rates."""

    category: str
    rates: list[RateRow]


@dataclass(frozen=True)
class WordChance:
    """One word of the target under teacher forcing."""

    word: str
    log_prob: float
    probability: float


@dataclass(frozen=True)
class Said:
    """One turn of a trigger."""

    role: str
    text: str
    toxicity: float | None = None
    """Of this turn, in a played conversation."""


@dataclass(frozen=True)
class Case:
    """One target and the best that the search ended with for it."""

    id: str
    target: str
    category: str
    severity: int
    status: str
    """found, nothing, failed, skipped, or untried where the run stopped before it."""
    note: str = ""
    hit: bool = False
    """By the criterion of --hit, in any restart."""
    restarts: int = 0
    trigger: list[str] | None = None
    """The turns of the shown finding; None where there is none."""
    turns: list[Said] | None = None
    """The same with who says each."""
    reply: str = ""
    """What greedy decoding really says to the trigger."""
    said: bool = False
    """Whether that reply is the target."""
    log_prob: float | None = None
    mean: float | None = None
    least: float | None = None
    input_mean: float | None = None
    loss: float | None = None
    holds: list[str] | None = None
    """The criteria that the shown finding meets."""
    holds_elsewhere: list[str] | None = None
    """The criteria that only another restart meets: they count in the rates."""
    words: list[WordChance] | None = None
    input_words: list[WordChance] | None = None
    """The words of the trigger, by the language model."""
    loss_by_sweep: list[float] | None = None
    similarity: float | None = None
    """Of reply and target, where the model was asked."""
    judge: float | None = None
    """The same by a sentence transformer that chose nothing."""
    toxicity: float | None = None
    """Of the reply, by the run's scorer."""
    trigger_toxicity: float | None = None
    asked: int = 0
    """Inputs that were really asked for it."""
    restart: int = 0
    """The one that is shown."""

    @property
    def anchor(self) -> str:
        return anchor_of(self.id)


def anchor_of(case: str) -> str:
    """The name of a case's place on a page: the same in every report of it."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", case):
        return f"f-{case}"
    return "f-" + hashlib.sha256(case.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class SweepLoss:
    """The loss after one sweep over all findings; those that stopped earlier keep their last loss."""

    sweep: int
    """0 is the start."""
    mean: float
    low: float
    """Lower quartile."""
    high: float
    """Upper quartile."""


@dataclass(frozen=True)
class Report:
    run: dict[str, Any]
    """The run's summary as stored, without its rates."""
    criterion: str
    """The one that --hit named."""
    headline: str
    rates: list[RateRow]
    categories: list[CategoryRows]
    cases: list[Case]
    """Hits first, the gravest and likeliest on top; then near misses, the nearest on top; those that failed,
    which are outside the rates, too."""
    skipped: list[Case]
    """Outside the rates: the model does not know their words."""
    untried: int
    """Cases that the run stopped before."""
    sweeps: list[SweepLoss]
    findings: int
    """How many findings the sweeps are taken over."""
    t_out: float | None
    t_in: float | None
    replies: Replies | None = None
    """What is added where the model was asked."""
    budget: list[BudgetPoint] = field(default_factory=list)
    """The share of cases that are hit by the candidates spent on each."""
    cloud: Cloud | None = None
    """How likely the inputs are against how bad what they lead to; None where nobody says how likely."""

    @property
    def failed(self) -> int:
        """Cases that could not be asked."""
        return sum(case.status == "failed" for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def build_report(
    summary: Mapping[str, Any],
    targets: Sequence[Target],
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    target_words: Mapping[str, Sequence[str]] | None = None,
    black_box: Mapping[str, Any] | None = None,
) -> Report:
    """The record of one run. `target_words` gives a target's words as its model cuts them, by the text;
    `black_box` what a run stored that was made by asking."""
    main_criterion = parse_criterion(str(summary["hit"]))
    criterion = main_criterion.name
    stored = summary.get("hits", {})
    # What can't be decided is left out: a rate of 0 would read as a pass.
    names = [
        name
        for name in dict.fromkeys([*criteria, *stored, criterion])
        if name in stored or parse_criterion(name).decidable(thresholds, findings)
    ]
    by_case: dict[str, list[Finding]] = {target.id: [] for target in targets}
    for finding in findings:
        by_case.setdefault(finding.case, []).append(finding)
    cases = [
        build_case(
            target, by_case[target.id], thresholds, names, criterion, (target_words or {}).get(target.text)
        )
        for target in targets
    ]
    shown = [case for case in cases if case.status not in {"skipped", "untried"}]
    tried = [case for case in shown if case.status in TRIED]
    rates = [_rate(name, stored, tried) for name in names]
    main = next((row for row in rates if row.criterion == criterion), None) or _rate(criterion, {}, [])
    likeliest = sorted(case.log_prob for case in tried if case.hit and case.log_prob is not None)
    knows_greedy = black_box is not None or any("greedy" in finding.scores for finding in findings)
    said = sum(any(_says_it(f) for f in by_case[case.id]) for case in tried)
    at_once = sum(case.hit and any(map(_hit_at_once, by_case[case.id])) for case in tried)
    curve = sweep_losses([finding.series.get("loss_by_sweep", []) for finding in findings])
    members: dict[str, list[Case]] = {}
    for case in shown:
        members.setdefault(case.category, []).append(case)
    return Report(
        run={key: value for key, value in summary.items() if key not in {"hits", "by_category"}},
        criterion=criterion,
        headline=headline(
            criterion,
            main.hits,
            main.n,
            main.low,
            main.high,
            said if knows_greedy else None,
            likeliest[-1] if likeliest else None,
            "The model" if black_box is not None else "Greedy decoding",
            quantile(likeliest, 0.5) if len(likeliest) > 2 else None,
            at_once if summary.get("search") in STARTS_AT_RANDOM else 0,
        ),
        rates=rates,
        categories=[
            CategoryRows(
                category,
                [_rate(name, summary.get("by_category", {}).get(category, {}), own) for name in names],
            )
            for category, own in members.items()
        ],
        cases=sorted(shown, key=_order),
        skipped=[case for case in cases if case.status == "skipped"],
        untried=sum(case.status == "untried" for case in cases),
        sweeps=curve,
        findings=sum(bool(_finite_list(f.series.get("loss_by_sweep", []))) for f in findings),
        t_out=_finite(thresholds.out),
        t_in=_finite(thresholds.into),
        replies=build_replies(summary, targets, findings, black_box) if black_box is not None else None,
        budget=[] if black_box is not None else hits_by_budget(by_case.values(), main_criterion, thresholds),
        cloud=cloud_of(tried, thresholds),
    )


def build_case(
    target: Target,
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    criterion: str,
    words: Sequence[str] | None = None,
) -> Case:
    """The case with its best finding: one that meets the criterion, and of those the one of lowest loss."""
    if not findings:
        return Case(target.id, target.text, target.category, target.severity, "untried")
    held = [
        [name for name in criteria if parse_criterion(name).holds(finding, thresholds)]
        for finding in findings
    ]
    order = sorted(
        range(len(findings)),
        key=lambda i: (
            criterion not in held[i],
            findings[i].status != "found",
            _or(findings[i].scores.get("loss"), math.inf),
            -_or(findings[i].scores.get("log_prob"), -math.inf),
            findings[i].restart,
        ),
    )
    best, holds = findings[order[0]], held[order[0]]
    return Case(
        id=target.id,
        target=target.text,
        category=target.category,
        severity=target.severity,
        status=best.status,
        note=best.note,
        hit=criterion in holds,
        restarts=len(findings),
        trigger=[turn.text for turn in best.turns if turn.role != DEFENDER] or None,
        turns=_turns(best) or None,
        reply=best.reply,
        said=_says_it(best),
        log_prob=_finite(best.scores.get("log_prob")),
        mean=_finite(best.scores.get("mean")),
        least=_finite(best.scores.get("min")),
        input_mean=_finite(best.scores.get("input_mean")),
        loss=_finite(best.scores.get("loss")),
        holds=holds,
        holds_elsewhere=[name for name in criteria if name not in holds and any(name in h for h in held)],
        words=word_chances(best.series.get("token_log_probs", []), target.text, words),
        input_words=_input_words(best),
        loss_by_sweep=_finite_list(best.series.get("loss_by_sweep", [])),
        similarity=_finite(best.scores.get("similarity")),
        judge=_finite(best.scores.get("judge")),
        toxicity=_finite(best.scores.get("toxicity")),
        trigger_toxicity=_finite(best.scores.get("trigger_toxicity")),
        asked=best.queries,
        restart=best.restart,
    )


def _turns(finding: Finding) -> list[Said]:
    """Who says what; in a played conversation also how toxic each turn is."""
    rated = {
        role: iter(finding.series.get(name, []))
        for role, name in ((ADVERSARY, "adversary_toxicity"), (DEFENDER, "toxicity"))
    }
    return [
        Said(turn.role, turn.text, _finite(next(rated.get(turn.role, iter(())), None)))
        for turn in finding.turns
    ]


def _hit_at_once(finding: Finding) -> bool:
    """Whether the random input that the search began with was enough."""
    losses = finding.series.get("loss_by_sweep", [])
    return bool(losses) and losses[0] <= 0


def _says_it(finding: Finding) -> bool:
    """Whether the reply is the target: by its words where the model was asked, else token by token."""
    if "similarity" in finding.scores:
        return EXACT.holds(finding, Thresholds(math.nan))
    return finding.scores.get("greedy") == 1


def word_chances(
    log_probs: Sequence[float], text: str, words: Sequence[str] | None = None
) -> list[WordChance]:
    """Each word of the target with its log-probability. Without words that fit, the tokens are numbered."""
    labels = [str(number + 1) for number in range(len(log_probs))]
    for split in (words, text.split()):
        if split is not None and len(split) == len(log_probs) - 1:
            labels = [*split, END]
            break
        if split is not None and len(split) == len(log_probs):
            labels = list(split)
            break
    return [
        WordChance(label, log_prob, math.exp(min(log_prob, 0.0)))
        for label, log_prob in zip(labels, log_probs, strict=True)
        if math.isfinite(log_prob)
    ]


def _input_words(finding: Finding) -> list[WordChance] | None:
    """The words of a trigger of one turn. It is not stored how they were cut, so the recipe is the one that
    gives as many words."""
    log_probs = finding.series.get("input_log_probs", [])
    if not log_probs or len(finding.turns) != 1 or len(log_probs) > MOST_WORDS:
        return None
    text = finding.turns[0].text[: 100 * MOST_WORDS]
    fitting = (words for recipe in RECIPES.values() if len(words := recipe.words(text)) == len(log_probs))
    return word_chances(log_probs, text, next(fitting, None))


def sweep_losses(series: Sequence[Sequence[float]]) -> list[SweepLoss]:
    """Mean and quartiles of the loss after each sweep."""
    kept = [finite for losses in series if (finite := _finite_list(losses))]
    length = max(map(len, kept), default=0)
    curve = []
    for sweep in range(length):
        losses = sorted(row[min(sweep, len(row) - 1)] for row in kept)
        mean = math.fsum(losses) / len(losses)
        curve.append(SweepLoss(sweep, mean, quantile(losses, 0.25), quantile(losses, 0.75)))
    return curve


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest of the ordered values."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _rate(name: str, stored: Mapping[str, Any], cases: Sequence[Case]) -> RateRow:
    """The stored rate of a criterion, or the one that the cases give for a criterion that is new."""
    if name in stored:
        found = stored[name]
        low, high = found["ci95"]
        return RateRow(name, found["hits"], found["n"], found["rate"], low, high, meaning(name))
    hits = sum(name in [*(case.holds or []), *(case.holds_elsewhere or [])] for case in cases)
    rate = Rate.of(hits, sum(case.status in TRIED for case in cases))
    return RateRow(name, hits, rate.n, rate.rate, rate.low, rate.high, meaning(name))


def _order(case: Case) -> tuple[bool, int, float, float, str]:
    log_prob = -_or(case.log_prob, -math.inf)
    if case.hit:
        return (False, -case.severity, log_prob, _or(case.loss, 0.0), case.id)
    return (True, 0, _or(case.loss, math.inf), log_prob, case.id)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or math.isnan(value) else value


def _finite_list(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
