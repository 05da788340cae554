"""From what a run stored to the record that every face shows. Pure: no model, no files, no clock.

Of a case's numbers those that are not finite become None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backtalk.data.tokenise import RECIPES
from backtalk.hits import TRIED, parse_criterion
from backtalk.report.conversations import with_conversations
from backtalk.report.explain import headline, meaning
from backtalk.report.record import (
    END,
    CaseRow,
    CategoryRows,
    RateRow,
    Report,
    Said,
    Sentences,
    SweepLoss,
    WordChance,
)
from backtalk.report.replies import build_replies
from backtalk.report.spread import cloud_of, hits_by_budget
from backtalk.stats import Rate
from backtalk.types import ADVERSARY, DEFENDER, Case, Finding, Opening, Thresholds

EXACT = parse_criterion("exact")
STARTS_AT_RANDOM = ("gibbs", "gcg")
"""Searches whose first loss is that of an input drawn at random."""
MOST_WORDS = 400
"""A chart of more bars is no picture."""


def build_report(
    summary: Mapping[str, Any],
    cases: Sequence[Case],
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    target_words: Mapping[str, Sequence[str]] | None = None,
    black_box: Mapping[str, Any] | None = None,
) -> Report:
    """The record of one run, with the part that its cases call for. `target_words` gives a target's words as
    its model cuts them, by the text; `black_box` what a run stored that was made by asking."""
    main_criterion = parse_criterion(str(summary["hit"]))
    criterion = main_criterion.name
    stored = summary.get("hits", {})
    # What can't be decided is left out: a rate of 0 would read as a pass.
    names = [
        name
        for name in dict.fromkeys([*criteria, *stored, criterion])
        if name in stored or parse_criterion(name).decidable(thresholds, findings)
    ]
    by_case: dict[str, list[Finding]] = {case.id: [] for case in cases}
    for finding in findings:
        by_case.setdefault(finding.case, []).append(finding)
    rows = [
        build_case(case, by_case[case.id], thresholds, names, criterion, (target_words or {}).get(case.text))
        for case in cases
    ]
    shown = [row for row in rows if row.status not in {"skipped", "untried"}]
    tried = [row for row in shown if row.status in TRIED]
    rates = [_rate(name, stored, tried) for name in names]
    main = next((row for row in rates if row.criterion == criterion), None) or _rate(criterion, {}, [])
    members: dict[str, list[CaseRow]] = {}
    for row in shown:
        members.setdefault(row.category, []).append(row)
    report = Report(
        run={key: value for key, value in summary.items() if key not in {"hits", "by_category"}},
        criterion=criterion,
        headline="",
        rates=rates,
        categories=[
            CategoryRows(
                category,
                [_rate(name, summary.get("by_category", {}).get(category, {}), own) for name in names],
            )
            for category, own in members.items()
        ],
        cases=sorted(shown, key=_order),
        skipped=[row for row in rows if row.status == "skipped"],
        untried=sum(row.status == "untried" for row in rows),
        t_out=_finite(thresholds.out),
        t_in=_finite(thresholds.into),
    )
    if any(case.kind == Opening.kind for case in cases):
        return with_conversations(report, findings, main, thresholds)
    likeliest = sorted(row.log_prob for row in tried if row.hit and row.log_prob is not None)
    knows_greedy = black_box is not None or any("greedy" in finding.scores for finding in findings)
    said = sum(any(_says_it(f) for f in by_case[row.id]) for row in tried)
    at_once = sum(row.hit and any(map(_hit_at_once, by_case[row.id])) for row in tried)
    return replace(
        report,
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
        sentences=Sentences(
            sweep_losses([finding.series.get("loss_by_sweep", []) for finding in findings]),
            sum(bool(_finite_list(f.series.get("loss_by_sweep", []))) for f in findings),
            build_replies(summary, cases, findings, black_box) if black_box is not None else None,
            [] if black_box is not None else hits_by_budget(by_case.values(), main_criterion, thresholds),
            cloud_of(tried, thresholds),
        ),
    )


def build_case(
    case: Case,
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    criterion: str,
    words: Sequence[str] | None = None,
) -> CaseRow:
    """The case with its best finding: one that meets the criterion, and of those the one of lowest loss."""
    if not findings:
        return CaseRow(case.id, case.text, case.category, case.severity, "untried")
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
    return CaseRow(
        id=case.id,
        target=case.text,
        category=case.category,
        severity=case.severity,
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
        words=word_chances(best.series.get("token_log_probs", []), case.text, words),
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


def _rate(name: str, stored: Mapping[str, Any], cases: Sequence[CaseRow]) -> RateRow:
    """The stored rate of a criterion, or the one that the cases give for a criterion that is new."""
    if name in stored:
        found = stored[name]
        low, high = found["ci95"]
        return RateRow(name, found["hits"], found["n"], found["rate"], low, high, meaning(name))
    hits = sum(name in [*(case.holds or []), *(case.holds_elsewhere or [])] for case in cases)
    rate = Rate.of(hits, sum(case.status in TRIED for case in cases))
    return RateRow(name, hits, rate.n, rate.rate, rate.low, rate.high, meaning(name))


def _order(case: CaseRow) -> tuple[bool, int, float, float, str]:
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
