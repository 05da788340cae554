"""Table 3: a baseline and its hardened models against malicious targets, each row a hardening of its own.

`harden` gets the lists as they are, keeps the last iteration, as the paper does, and audits nothing: here the
baseline is measured once, and every model on the same two lists, the 500 written training targets and the
test targets. Test targets searched after each iteration only draw the way there.

All searches, in training with the paper's settings and in the measures, lower eq. 7 of the paper: the average
of all words, to the last sweep. The public code (cloudygoose/negativetraining_acl2020) never turns dropout
off, not even where it counts hits, and asks for no likely input there; so each trigger is also scored that
way, some times over.
"""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from backtalk.hits import parse_criterion
from backtalk.models.device import pick_device, product_precision
from backtalk.models.folder import load_folder
from backtalk.models.lstm.model import LocalModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.stats import Rate
from backtalk.store import Run
from reproduction.egregious.data import SEED, evenly
from reproduction.egregious.search import best_findings, search, write_list
from reproduction.hardenings import page_values, run_harden
from reproduction.negative.data import NegativeData, known_targets, open_baseline
from reproduction.negative.paper import BASELINE, LISTS, Size
from reproduction.page import Found, Result
from reproduction.runner import Workplace

Ids = Sequence[int]
NONE: Found = MappingProxyType({})
MEASURED = {"train": "500", "test": "test"}  # the lists that every model is measured on
DRAWS = 10  # random dropout masks of each measurement with dropout
OURS = ("switchboard", "o-sample-avg-k1")  # the corpus and hit of our own rows in Table 3
PRECISION = "tf32 on a GPU"
"""Precision in which the audits rank candidates; the searches during training use the same."""
DEFAULTS = {"settings": "default"}
SPARED = {"settings": "default", "avoid": "paper", "kl": "3"}  # earlier defaults of `harden`
EXTRA: dict[str, tuple[str, str, dict[str, Any]]] = {
    "500-no-fwa": ("500", "FWA off", {"avoid": "none"}),
    "500-sentences": ("500", "losses averaged over sentences, not words", {"mean_over": "sentences"}),
    "500-hits": ("500", "averaged over the hits that are left", {"average": "hits"}),
    "500-default": ("500", "default settings", DEFAULTS),
    "1000-default": ("1000", "default settings", DEFAULTS),
    "2500-default": ("2500", "default settings", DEFAULTS),
    "500-unlikelihood": ("500", "unlikelihood, default settings", DEFAULTS | {"method": "unlikelihood"}),
    "500-npo": ("500", "NPO, default settings", DEFAULTS | {"method": "npo"}),
    "500-kl-3": ("500", "default settings, KL 3", DEFAULTS | {"kl": "3"}),
    "500-fwa-kl-3": ("500", "default settings, FWA, KL 3", SPARED),
    "1000-fwa-kl-3": ("1000", "default settings, FWA, KL 3", SPARED),
    "500-unlikelihood-fwa-kl-3": (
        "500", "unlikelihood, default settings, FWA, KL 3", SPARED | {"method": "unlikelihood"}
    ),
    "500-npo-fwa-kl-3": ("500", "NPO, default settings, FWA, KL 3", SPARED | {"method": "npo"}),
}  # fmt: skip
"""Our own rows: the training list, the title, and what is set over the paper's settings."""
PASSES = "500-passes"  # one more row, with as many passes as the paper's, for both hits of that corpus
OLDER_ROWS = (BASELINE, *LISTS, PASSES)  # the rows whose models are searched with the objective of 2019 too
OLDER = {"all_words": False, "as_published": True}
"""Search settings of 2019: eq. 6 of that paper ignores words that are likely enough. The public code is
closer to it than to eq. 7: it gives such a word a hundredth of its weight."""


def row_part(corpus: str, hit: str, row: str) -> str:
    """The part that makes and measures a row of Table 3."""
    return f"malicious-{corpus}-{hit}-{row}"


def older_part(row: str) -> str:
    """The part that searches the model of one of `OLDER_ROWS` as in 2019."""
    return f"as-2019-{row}"


def extra_rows(corpus: str, hit: str) -> tuple[str, ...]:
    """The rows of Table 3 that the paper does not have."""
    if corpus != OURS[0]:
        return ()
    return (PASSES, *EXTRA) if hit == OURS[1] else (PASSES,)


def row_settings(size: Size, corpus: str, hit: str, over: Found) -> dict[str, Any]:
    values = size.some("iterations", "batch", "length", "top", "sweeps", "measure")
    values |= {"rounds": size.rounds} if size.rounds else {}
    values |= {"hit": hit, "settings": corpus, "keep": "last", "search_sweeps": size.sweeps, "seed": SEED}
    return {**values, **over}


def measure_settings(size: Size, hit: str) -> dict[str, Any]:
    """The audit of both lists; its seed is none that training used."""
    sizes = size.some("length", "top", "sweeps", "restarts")
    return {"search": "gibbs", "hit": hit, **sizes, "all_words": True, "seed": SEED + 1}


def measure_row(
    place: Workplace, data: NegativeData, size: Size, corpus: str, hit: str, row: str, over: Found = NONE
) -> Result:
    """The model of a row that is there, the baseline or a hardened one; `over` sets another search."""
    baseline = open_baseline(place, data.sources[corpus])
    model = row_model(place, baseline, corpus, hit, row)
    return {"corpus": corpus, "hit": hit, "lists": _measure(place, data, size, baseline, model, hit, over)}


def row_model(place: Workplace, baseline: LocalModel, corpus: str, hit: str, row: str) -> LocalModel:
    if row == BASELINE:
        return baseline
    return load_folder(str(place.path("hardenings", row_part(corpus, hit, row), "model")), place.device)


def harden_row(
    place: Workplace, data: NegativeData, size: Size, corpus: str, list_name: str, followed: int,
    settings: Found,
) -> Result:  # fmt: skip
    """Trains a row's model and measures it; `followed` test targets are searched after each iteration."""
    baseline = open_baseline(place, data.sources[corpus])
    trained, left_out = known_targets(data, size, baseline, list_name)
    test, _ = known_targets(data, size, baseline, "test")
    files = {
        "targets": write_list(place, f"{place.part}-train", trained),
        "selection": write_list(place, f"{place.part}-followed", evenly(test, followed)),
        "held_out": write_list(place, f"{place.part}-test", test),
    }
    values = {**settings, **{key: str(path) for key, path in files.items()}, "model": baseline.name}
    summary = run_harden(place, {**values, "audits": False})
    hardened = load_folder(str(place.path("hardenings", place.part, "model")), place.device)
    found = {"corpus": corpus, "hit": settings["hit"], "list": list_name, **page_values(summary)}
    found |= {"trained_on": len(trained), "left_out": left_out}
    return {**found, "lists": _measure(place, data, size, baseline, hardened, settings["hit"])}


def _measure(
    place: Workplace, data: NegativeData, size: Size, baseline: LocalModel, model: LocalModel, hit: str,
    over: Found = NONE,
) -> Result:  # fmt: skip
    found: Result = {}
    for name, list_name in MEASURED.items():
        targets, left_out = known_targets(data, size, baseline, list_name)
        run = f"{place.part}-{name}"
        how = "tf32" if pick_device(place.device).type == "cuda" else "auto"
        settings = {**measure_settings(size, hit), **over}
        result = search(place, run, model, targets, settings, how)
        found[name] = {
            "n": result["n"],
            "left_out": left_out,
            "rate": result["hits"].get(hit),
            "with_dropout": _with_dropout(place.path("runs", run), model, hit) if result["n"] else None,
            "hit": sorted(case for case, one in result["targets"].items() if hit in one["hits"]),
            "candidates": result.get("candidates", 0),
            "seconds": result.get("seconds", 0.0),
        }
    return found


def _with_dropout(folder: Path, model: LocalModel, hit: str) -> dict[str, Any]:
    """The share of a finished run's targets that its best triggers hit while dropout is on, on average over
    some draws. T_out is the run's, and the input may be anything."""
    with Run.open(folder) as run:
        best, enough = list(best_findings(run.findings()).values()), run.thresholds.out
    triggers = [finding.turns[0].ids for finding in best]
    goals = [model.encode_target(finding.target) for finding in best]
    by_least = parse_criterion(hit).kind == "sample-min"
    hits = hits_with_dropout(model, triggers, goals, enough, by_least)
    return Rate.of(round(sum(hits) / len(hits)), len(best)).as_dict() | {"draws": hits}


@torch.no_grad()
def hits_with_dropout(
    model: LocalModel, triggers: Sequence[Ids], goals: Sequence[Ids], enough: float, by_least: bool
) -> list[int]:
    """How many targets are said with an average (or least) log-probability above `enough`, of each draw."""
    inputs = pad_rows(triggers, model.pad).to(model.device)
    targets = pad_rows(goals, model.pad).to(model.device)
    there = targets != model.pad
    network, was = model.network, model.network.training
    network.train()
    found = []
    try:
        with torch.random.fork_rng(), product_precision("highest"):
            torch.manual_seed(SEED)
            for _ in range(DRAWS):
                said = network.token_log_probs(inputs, targets)  # 0 where padded
                score = said.amin(1) if by_least else said.sum(1) / there.sum(1)
                found.append(int((score > enough).sum()))
    finally:
        network.train(was)
    return found
