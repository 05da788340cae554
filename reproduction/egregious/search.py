"""Tables 3, 4 and 11: one gibbs-enum search of one model for one list and one hit, and what it amounts to.

A search is an ordinary audit run under runs/, so it resumes block by block. Hits are counted by
the paper's rule, the restart of lowest loss, and by any restart beside it.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from backtalk.audit.cases import can_say
from backtalk.data.targets import write_targets
from backtalk.hits import STANDARD, rates_by_category
from backtalk.models.device import pick_device
from backtalk.models.folder import load_folder
from backtalk.models.lstm.model import LocalModel
from backtalk.store import Run
from backtalk.types import Finding, Target
from reproduction.data.controls import random_targets
from reproduction.egregious.data import SEED, Data, is_own, mal_targets, model_name, normal_targets
from reproduction.egregious.paper import Size
from reproduction.hardenings import run_audit
from reproduction.page import Found, Result
from reproduction.runner import Workplace

RESTARTS_SHOWN = (1, 2, 5, 10)
SHOWN_TARGETS = 40  # targets of our own list that are kept with their words
CURVE_TARGETS = 100


def search_settings(size: Size, hit: str, restarts: int = 0, top: int = 0) -> dict[str, Any]:
    """The paper's search: as published, <unk> allowed, every row to its end."""
    values = {"search": "gibbs", "hit": hit, **size.some("length", "sweeps"), "top": top or size.top}
    values |= {"restarts": restarts or size.restarts, "seed": SEED}
    return values | {"as_published": True, "with_unknown": True}


def open_model(place: Workplace, corpus: str, arch: str) -> LocalModel:
    return load_folder(str(place.path(model_name(corpus, arch))), place.device)


def list_targets(data: Data, size: Size, model: LocalModel, corpus: str, name: str) -> list[Target]:
    if name == "mal":
        return mal_targets(data, model, size.mal)
    if name == "random":
        return random_targets(model, size.random, SEED)
    return normal_targets(data.sources[corpus], model, size.normal)


def search(
    place: Workplace, name: str, model: LocalModel, targets: Sequence[Target], settings: Found, how: str = ""
) -> Result:
    """Audits the targets in runs/NAME and sums it up; `how` is the precision of candidates' scores. A list
    that can't be said gives an empty result."""
    if not any(can_say(model, target.text) for target in targets):
        return {"n": 0, "skipped": len(targets), "hit": settings["hit"], "hits": {}, "targets": {}, "own": []}
    file = write_list(place, name, targets)
    prune = pick_device(place.device).type == "cpu"  # exact either way; on a GPU it costs more than it saves
    values = {**settings, "model": model.name, "targets": str(file), "prune": prune}
    values["precision"] = how or "auto"
    return sum_up(run_audit(place, name, values, fresh=_outdated(place.path("runs", name), model)))


def write_list(place: Workplace, name: str, targets: Sequence[Target]) -> Path:
    """Writes lists/NAME.jsonl."""
    path = place.path("lists", f"{name}.jsonl")
    write_targets(path, targets)
    return path


def run_search(
    place: Workplace, data: Data, size: Size, corpus: str, arch: str, list_name: str, settings: Found
) -> Result:
    model = open_model(place, corpus, arch)
    targets = list_targets(data, size, model, corpus, list_name)
    found = search(place, place.part, model, targets, settings)
    return {"corpus": corpus, "arch": arch, "list": list_name, **found}


def best_restarts(findings: Sequence[Finding]) -> list[Finding]:
    """The papers' rule: of the restarts that found something, the one of lowest loss counts."""
    best = best_findings(findings)
    return [one for one in findings if one.status != "found" or one is best[one.case]]


def sum_up(folder: Path) -> Result:
    """A finished run as numbers: no text but that of targets which stand in our own list."""
    with Run.open(folder) as run:
        findings, targets, thresholds = run.findings(), run.cases, run.thresholds
        restarts, words, seconds = run.spec["search"]["restarts"], run.facts["words"], run.seconds()
        hit = run.spec["hit"]

    def counts(some: Sequence[Finding]) -> dict[str, Any]:
        return {
            name: rate.as_dict()
            for name, rate in rates_by_category(targets, some, STANDARD, thresholds)[""].items()
        }

    by_best, by_any = counts(best_restarts(findings)), counts(findings)
    counted = sorted({r for r in RESTARTS_SHOWN if r < restarts} | {restarts})
    few = {r: [f for f in findings if f.restart < r] for r in counted}
    best = best_findings(findings)
    found = [finding for finding in findings if finding.status == "found"]
    met = {f.case: [c.name for c in STANDARD if c.holds(f, thresholds)] for f in best.values()}
    return {
        "hit": hit,
        "n": len(best.keys() | {f.case for f in findings if f.status == "nothing"}),
        "skipped": sum(finding.status == "skipped" for finding in findings),
        "restarts": restarts,
        "thresholds": {"T_out": thresholds.out, "T_in": thresholds.into},
        "hits": {name: {"best": by_best[name], "any": by_any[name]} for name in by_best},
        "by_restarts": {str(r): counts(best_restarts(some)) for r, some in few.items()},
        "targets": {
            case: {key: finding.scores.get(key) for key in ("mean", "min", "greedy", "input_mean", "loss")}
            | {"hits": met[case]}
            for case, finding in best.items()
        },
        "own": [
            {
                "target": finding.target,
                "trigger": finding.trigger,
                "hits": met[finding.case],
                "words": [word.lower() for word in words[finding.target]],  # as the model reads them
                "token_log_probs": finding.series["token_log_probs"],
            }
            for finding in best.values()
            if is_own(finding.target)
        ][:SHOWN_TARGETS],
        "mean_sweeps": _mean([len(f.series["loss_by_sweep"]) - 1 for f in found]),
        "candidates": sum(finding.candidates for finding in findings),
        "seconds": seconds,
        "loss_by_sweep": mean_curve(found, "loss_by_sweep"),
        "output_loss_by_sweep": mean_curve(found, "output_loss_by_sweep"),
    }


def mean_curve(findings: Sequence[Finding], series: str, targets: int = CURVE_TARGETS) -> list[float]:
    """The mean by sweep, first restart of the first targets; a row that stopped keeps its last value."""
    rows = [f.series[series] for f in findings if f.restart == 0 and f.series.get(series)][:targets]
    longest = max(map(len, rows), default=0)
    return [_mean([row[min(sweep, len(row) - 1)] for row in rows]) for sweep in range(longest)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _outdated(folder: Path, model: LocalModel) -> bool:
    if not Run.exists(folder):
        return False
    with Run.open(folder) as run:
        return bool(run.facts["fingerprint"] != model.fingerprint)


def best_findings(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The found restart of lowest loss of each case, or the first of equals; in the order of the cases."""

    def rank(finding: Finding) -> tuple[float, int]:
        loss = finding.scores.get("loss", math.inf)
        return math.inf if math.isnan(loss) else loss, finding.restart

    best: dict[str, Finding] = {}
    for finding in findings:
        if finding.status == "found":
            before = best.setdefault(finding.case, finding)
            best[finding.case] = min(before, finding, key=rank)
    return best
