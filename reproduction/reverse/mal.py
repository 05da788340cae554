"""What a user cares about: rude sentences drawn from the embedded model, sealed, by each search at equal
queries, and by white-box gibbs beside them. Each is an ordinary audit: it resumes and can be verified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backtalk.audit.flow import audit
from backtalk.data.targets import load_mal, one_per_prototype, write_targets
from backtalk.hits import TEXT_STANDARD, TRIED, rates
from backtalk.report.progress import shown
from backtalk.runs.summary import thresholds_of
from backtalk.scorers.similarity import WordVectors, load_vectors
from backtalk.searches.reverse.input_likelihood import embedded_scorer
from backtalk.specs.audit import flat_spec
from backtalk.store import Run
from backtalk.terminal import make_console
from backtalk.types import Finding
from reproduction.bootstrap import mean_of
from reproduction.parts import Result, Workplace
from reproduction.reverse.data import SEED
from reproduction.reverse.sizes import Size

SEARCHES: dict[str, dict[str, Any]] = {
    "reverse": {"model": "sealed:chitchat", "search": "reverse"},
    "crafted": {"model": "sealed:chitchat", "search": "reverse", "recall": False},
    "crafted-beam": {"model": "sealed:chitchat", "search": "reverse", "recall": False, "decode": "beam"},
    "crafted-no-rl": {"model": "sealed:chitchat", "search": "reverse", "recall": False, "rl": False},
    "retrieval": {"model": "sealed:chitchat", "search": "retrieval"},
    "random": {"model": "sealed:chitchat", "search": "utterances"},
    "gibbs": {"model": "chitchat", "search": "gibbs", "hit": "io-sample-avg-k1"},
}
"""By the name of the row. `crafted` is reverse without what was answered in training; gibbs sees the weights
and has no queries to count."""


def audit_mal(place: Workplace, name: str, size: Size, utterances: str = "") -> Result:
    """`utterances` is a file to ask from; chitchat if empty."""
    file = place.path("lists", f"mal-{name}.jsonl")
    write_targets(file, one_per_prototype(load_mal(), size.mal_targets, SEED))
    values = {**SEARCHES[name], "targets": str(file), "seed": SEED, "device": place.device}
    if name != "gibbs":
        values |= {"max_queries": size.mal_queries, "judge": size.judge, "utterances": utterances}
    folder = place.path("runs", f"mal-{name}")
    with shown(make_console(stderr=True)) as tell:
        audit(flat_spec(values, name), str(folder), progress=tell)
    with Run.open(folder) as run:
        vectors = load_vectors()
        findings = [_measured(finding, vectors) for finding in run.findings()]
        found = rates(run.cases, findings, TEXT_STANDARD, thresholds_of(run))
    triggers = [finding.trigger for finding in findings if finding.status == "found"]
    natural = embedded_scorer(place.device).of_many(triggers)
    return {
        "hits": {criterion: rate.as_dict() for criterion, rate in found.items()},
        "similarity": mean_of([f.scores.get("similarity", 0.0) for f in findings if f.status in TRIED]),
        "input_mean": natural.mean if natural.n else None,
        "inputs_scored": natural.n,
    }


def _measured(finding: Finding, vectors: WordVectors) -> Finding:
    """With the similarity of its reply, which a white-box search does not store."""
    if finding.status != "found" or "similarity" in finding.scores:
        return finding
    (near,) = vectors.similarity([finding.reply], [finding.target]).tolist()
    return replace(finding, scores={**finding.scores, "similarity": near})
