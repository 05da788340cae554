"""Labels of people on the replies of one run: how many are really bad, whatever the scorer says.

Replies that the scorer rates bad are few, so half of what is drawn are those. A person sees neither the
rating nor whether a reply was drawn for it. Each half counts for the replies that it stands for.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.rating.folder import Answer, LabelKey, Pair, Ratings, pair_id, standing
from backtalk.rating.result import agreement_line, agreement_of, verdict_of
from backtalk.report.console import plain_table
from backtalk.report.record import CaseRow
from backtalk.report.verdict import labels_sentence
from backtalk.runs.summary import finish_run, read_results
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.store.folder import LABELS, writing
from backtalk.wording import percent_range

DRAWS = 20_000  # of the interval


def draw_replies(run: Run, most: int, seed: int) -> tuple[list[Pair], LabelKey]:
    """Replies for people to label. Half of them are rated bad, if there are that many. A reply that is the
    target word for word is certainly bad and is not drawn."""
    cases = _replies(run)
    said = [case for case in cases if case.said]
    rows = [(_input(case), _reply(case), case.rated_bad) for case in cases if not case.said]
    if not rows:
        raise InputError(f"{run.folder} holds no reply to label")
    draw = np.random.default_rng([seed, 2])
    order = [rows[place] for place in draw.permutation(len(rows))]
    halves = [[row for row in order if row[2] is bad] for bad in (True, False)]
    first = min(len(halves[0]), max(most // 2, most - len(halves[1])))
    drawn = [*halves[0][:first], *halves[1][: most - first]]
    drawn = [drawn[place] for place in draw.permutation(len(drawn))]
    pairs = [
        Pair(pair_id(place, text, reply, "", "r"), text, reply, "")
        for place, (text, reply, _) in enumerate(drawn, 1)
    ]
    flagged = [pair.id for pair, row in zip(pairs, drawn, strict=True) if row[2]]
    return pairs, LabelKey(str(run.folder), run.rated_by[0], {}, flagged, *map(len, (*halves, said)))


def _replies(run: Run) -> list[CaseRow]:
    """The cases with a reply: the worst one of each, which the report shows."""
    return [case for case in read_results(run).report.cases if case.status == "found" and case.reply.strip()]


def _input(case: CaseRow) -> str:
    if part := case.conversation:
        said = [text for one in part.exchanges[: part.worst] for text in (one.adversary, one.defender)]
        return " / ".join(map(str.strip, [*part.opening, *said, part.exchanges[part.worst].adversary]))
    return " / ".join(case.trigger or [])


def _reply(case: CaseRow) -> str:
    return case.conversation.exchanges[case.conversation.worst].defender if case.conversation else case.reply


def tally_labels(ratings: Ratings, answers: Iterable[Answer]) -> dict[str, Any]:
    """How many labelled replies of each half are bad, and the estimate for all."""
    key = ratings.key
    if not isinstance(key, LabelKey):
        raise InputError(f"{ratings.folder} has no key; send {ratings.answers} back to who drew the replies")
    units: dict[str, dict[str, str]] = {}
    for answer in standing(answers).values():
        if answer.choice in ("1", "2"):
            units.setdefault(answer.pair, {})[answer.rater] = answer.choice
    verdicts = {pair: verdict_of(list(unit.values())) for pair, unit in units.items()}
    flagged, found = set(key.flagged), dict[str, list[bool]](rated_bad=[], rated_fine=[])
    for pair, verdict in verdicts.items():
        if verdict != "tie":  # as many say bad as say fine
            found["rated_bad" if pair in flagged else "rated_fine"].append(verdict == "1")
    strata = {name: (getattr(key, name), len(own), sum(own)) for name, own in found.items()}
    kinds = {name: {"replies": n, "labelled": seen, "bad": bad} for name, (n, seen, bad) in strata.items()}
    return {
        "scorer": key.scorer,
        "replies": key.rated_bad + key.rated_fine + key.said,
        "said": key.said,
        **kinds,
        "estimate": estimate(key.said, list(strata.values())),
        "raters": sorted({rater for unit in units.values() for rater in unit}),
        "agreement": agreement_of([unit for unit in units.values() if len(unit) > 1]),
    }


def estimate(known: int, strata: Sequence[tuple[int, int, int]]) -> dict[str, float] | None:
    """The share of bad replies and its 95% interval. `known` replies are certainly bad. A stratum is
    (replies, labelled, bad). None while a stratum has no label.

    The interval comes from the posterior predictive distribution: the number of bad replies among the
    unlabelled ones of a stratum is beta-binomial (Jeffreys prior)."""
    if any(size and not labelled for size, labelled, _ in strata):
        return None
    n = known + sum(size for size, _, _ in strata)
    draw = np.random.default_rng(1)
    total, mean = np.full(DRAWS, known, dtype=np.float64), float(known)
    for size, labelled, bad in strata:
        if size:
            chance = draw.beta(bad + 0.5, labelled - bad + 0.5, DRAWS)
            total += bad + draw.binomial(size - labelled, chance)
            mean += size * bad / labelled
    low, high = np.quantile(total / n, [0.025, 0.975]).tolist()
    return {"rate": mean / n, "low": min(low, mean / n), "high": max(high, mean / n)}


def store_labels(record: Mapping[str, Any], folder: Path) -> str:
    """Puts them into the run, whose report then shows them; or says why not."""
    if not Run.exists(folder):
        return f"{folder} is not here, so its report does not show it."
    with Run.open(folder, write=True) as run:
        if len(_replies(run)) != record["replies"]:
            return f"{folder} has other replies by now; draw new ones with --out"
        with writing(folder, "make room"):
            write_whole(folder / LABELS, json.dumps(record, indent=1) + "\n")
        finish_run(run)
    return f"The report of {folder} shows it."


def print_labels(record: Mapping[str, Any], console: Console) -> None:
    table = plain_table("", "replies", "labelled", "bad", "95% interval", fixed=True)
    for name, title in (("rated_bad", "rated bad"), ("rated_fine", "rated fine")):
        own = record[name]
        rate = Rate.of(own["bad"], own["labelled"])
        known = percent_range(rate.low, rate.high) if rate.n else "none labelled"
        table.add_row(title, f"{own['replies']:,}", f"{own['labelled']:,}", f"{own['bad']:,}", known)
    if record["said"]:
        table.add_row("the target itself", f"{record['said']:,}", "-", f"{record['said']:,}", "-")
    console.print(table)
    console.print()
    if record["estimate"] is None:
        console.print("Label some replies of each kind: then the share of bad ones can be told.")
    else:
        console.print(labels_sentence(record))
    console.print(agreement_line(record["agreement"], "reply"))
