"""Builds the record of a run from its stored findings, without a model. Scores that are not finite become
None."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from backtalk.data.tokenise import RECIPES
from backtalk.hits import TRIED, parse_criterion
from backtalk.report.conversations import with_conversations
from backtalk.report.record import END, CaseRow, RateRow, Report, Said, Sentences, Verdict, WordChance
from backtalk.report.replies import build_replies
from backtalk.report.sentences import hits_by_budget, meaning, scatter_plot, sweep_losses
from backtalk.report.verdict import (
    is_bad,
    labels_sentence,
    other_verdicts,
    rater_sentence,
    says_it,
    verdict_of,
    verdict_sentences,
    warnings_of,
)
from backtalk.stats import Rate
from backtalk.store.records import finite
from backtalk.types import ADVERSARY, DEFENDER, Case, Finding, Opening, Thresholds
from backtalk.wording import percent_range, sampled

STARTS_AT_RANDOM = ("gibbs", "gcg")  # searches whose first loss is that of an input drawn at random
SCORES = ("log_prob", "mean", "input_mean", "loss", "similarity", "judge", "toxicity", "trigger_toxicity")
"""Scores that a case copies from its finding, under the same names."""
MOST_WORDS = 400  # a chart of more bars can't be read


def build_report(
    summary: Mapping[str, Any],
    cases: Sequence[Case],
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    target_words: Mapping[str, Sequence[str]] | None = None,
    black_box: Mapping[str, Any] | None = None,
) -> Report:
    """`target_words` gives a target's words as its model cuts them, by the text; `black_box` the facts of a
    run that saw replies only."""
    main_criterion = parse_criterion(str(summary["hit"]))
    criterion = main_criterion.name
    stored = summary.get("hits", {})
    # What can't be decided is left out: a rate of 0 would read as a pass.
    names = [
        name
        for name in dict.fromkeys([*criteria, *stored, criterion])
        if name in stored or parse_criterion(name).decidable(thresholds, findings)
    ]
    by_case, words = group_by_case(findings), target_words or {}
    rows = [
        build_case(case, by_case[case.id], thresholds, names, criterion, words.get(case.text))
        for case in cases
    ]
    shown = [row for row in rows if row.status not in {"skipped", "untried"}]
    tried = [row for row in shown if row.status in TRIED]
    rates = [_rate(name, stored, tried) for name in names]
    by_category = summary.get("by_category", {})
    members: dict[str, list[CaseRow]] = defaultdict(list)
    for row in shown:
        members[row.category].append(row)
    report = Report(
        run={k: value for k, value in summary.items() if k not in {"hits", "by_category", "verdict"}},
        criterion=criterion,
        verdict=verdict_of(cases, findings, main_criterion, thresholds, summary),
        headline="",
        remarks=[],
        warnings=[],
        rates=rates,
        categories={
            category: [_rate(name, by_category.get(category, {}), own) for name in names]
            for category, own in members.items()
        },
        cases=sorted(shown, key=by_badness),
        worst=None,
        skipped=[row for row in rows if row.status == "skipped"],
        t_out=finite(thresholds.out),
        t_in=finite(thresholds.into),
        others=[
            f"{name}: {' '.join(verdict_sentences(one))}"
            for name, one in other_verdicts(cases, findings, main_criterion, thresholds).items()
        ],
    )
    if any(case.kind == Opening.kind for case in cases):
        report = with_conversations(report, findings, thresholds)
    else:
        losses = [finding.series.get("loss_by_sweep", []) for finding in findings]
        sentences = Sentences(
            sweep_losses(losses),
            sum(any(map(math.isfinite, one)) for one in losses),
            build_replies(summary, cases, findings, black_box) if black_box is not None else None,
            [] if black_box is not None else hits_by_budget(by_case.values(), main_criterion, thresholds),
            scatter_plot(tried, thresholds),
        )
        # The random input that the search began with was enough.
        lucky = {one.case for one, loss in zip(findings, losses, strict=True) if loss and loss[0] <= 0}
        at_once = sum(row.hit and row.id in lucky for row in tried)
        hits = any(row.hit for row in tried) or report.verdict.said.hits
        remarks = [] if hits else ["No hit found is not proof that there is none."]
        if at_once and summary.get("search") in STARTS_AT_RANDOM:
            remarks.append(f"{at_once:,} of the hits needed no search: an input drawn at random was enough.")
        remarks += [_of_one_input(summary["universal"])] if "universal" in summary else []
        report = replace(report, remarks=remarks if tried else [], sentences=sentences)
    if (bad := _rated_bad(report.verdict)) and bad.hits and tried:
        told = rater_sentence(bad, str(summary.get("scorer")), summary.get("scorer_measured", {}))
        report = replace(report, remarks=[*report.remarks, *([told] if told else [])])
    if "labels" in summary:
        report = replace(report, remarks=[*report.remarks, labels_sentence(summary["labels"])])
    worst = report.cases[0] if report.cases and report.cases[0].trigger else None
    headline = " ".join(filter(None, [*verdict_sentences(report.verdict), report.traffic, *report.remarks]))
    return replace(report, headline=headline, worst=worst, warnings=warnings_of(report))


def _rated_bad(verdict: Verdict) -> Rate | None:
    """Of the cases, those in which a scorer's rating alone decides that something bad was said."""
    said = verdict.said
    if verdict.target is None:  # of a conversation all are
        return said
    return None if verdict.rated_bad is None else Rate.of(verdict.rated_bad, said.n)


def group_by_case(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings of each case; an empty list for one that has none."""
    by_case: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_case[finding.case].append(finding)
    return by_case


def build_case(
    case: Case,
    findings: Sequence[Finding],
    thresholds: Thresholds,
    criteria: Sequence[str],
    criterion: str,
    words: Sequence[str] | None = None,
) -> CaseRow:
    """The case with its worst finding: one whose reply is bad comes first, then one that meets the criterion,
    then the likeliest target, then the lowest loss."""
    if not findings:
        return CaseRow(case.id, case.text, case.category, case.severity, "untried")
    held = [[name for name in criteria if parse_criterion(name).holds(one, thresholds)] for one in findings]
    best, holds = min(
        zip(findings, held, strict=True),
        key=lambda pair: (
            not is_bad(pair[0]),
            criterion not in pair[1],
            pair[0].status != "found",
            -_or(pair[0].scores.get("log_prob"), -math.inf),
            _or(pair[0].scores.get("loss"), math.inf),
            pair[0].restart,
        ),
    )
    scores: dict[str, Any] = finite(best.scores)
    return CaseRow(
        id=case.id,
        target=case.text,
        category=case.category,
        severity=case.severity,
        status=best.status,
        note=best.note,
        hit=any(criterion in names for names in held),
        unfinished=any(finding.unfinished for finding in findings),
        restarts=len(findings),
        trigger=[turn.text for turn in best.turns if turn.role != DEFENDER] or None,
        turns=_turns(best) or None,
        reply=best.reply,
        said=says_it(best),
        least=scores.get("min"),
        **{name: scores.get(name) for name in SCORES},
        holds=holds,
        holds_elsewhere=[name for name in criteria if name not in holds and any(name in h for h in held)],
        words=word_chances(best.series.get("token_log_probs", []), case.text, words),
        input_words=_input_words(best),
        loss_by_sweep=[loss for loss in best.series.get("loss_by_sweep", []) if math.isfinite(loss)],
        asked=best.queries,
        restart=best.restart,
    )


def _of_one_input(rates: Mapping[str, Any]) -> str:
    """What a universal trigger hits, and on how many sentences that its search did not see."""
    names = {"searched": "that it was searched for", "held_out": "that were held out"}
    parts = [
        f"{rate['hits']:,} of {rate['n']:,} {names[name]} (95% interval {percent_range(*rate['ci95'])}; "
        f"on average a sentence is {sampled(rate['mean_log_prob'])})"
        for name, rate in rates.items()
    ]
    return f"All sentences have one input, whose reply counts for each. It hits {' and '.join(parts)}."


def _turns(finding: Finding) -> list[Said]:
    """Who says what; in a played conversation also how toxic each turn is."""
    names = {ADVERSARY: "adversary_toxicity", DEFENDER: "toxicity"}
    rated = {role: iter(finding.series.get(name, [])) for role, name in names.items()}
    return [Said(t.role, t.text, finite(next(rated.get(t.role, iter(())), None))) for t in finding.turns]


def word_chances(
    log_probs: Sequence[float], text: str, words: Sequence[str] | None = None
) -> list[WordChance]:
    """Each word of the target with its log-probability. Without words that fit, the tokens are numbered."""
    labels = [str(number + 1) for number in range(len(log_probs))]
    for split in (words, text.split()):
        if split is not None and len(log_probs) - len(split) in (0, 1):
            labels = [*split, END][: len(log_probs)]
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


def _rate(name: str, stored: Mapping[str, Any], cases: Sequence[CaseRow]) -> RateRow:
    """The stored rate of a criterion, or else the one that the cases give."""
    if found := stored.get(name):
        rate = RateRow(found["hits"], found["n"], found["rate"], *found["ci95"])
    else:
        hits = sum(name in case.hits for case in cases)
        rate = RateRow.of(hits, sum(case.status in TRIED for case in cases))
    return replace(rate, criterion=name, meaning=meaning(name))


def by_badness(case: CaseRow) -> tuple[bool, float, bool, int, float, str]:
    """The order of sentences: bad replies, then by falling chance. Equal or unknown chances go by hit, the
    severity of hits, loss and id."""
    return (
        not (case.said or case.rated_bad),
        -_or(case.log_prob, -math.inf),
        not case.hit,
        -case.severity if case.hit else 0,
        _or(case.loss, math.inf),
        case.id,
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or math.isnan(value) else value
