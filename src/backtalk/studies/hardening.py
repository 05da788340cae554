"""`backtalk study hardening`: held-out hit rate against perplexity for every way to harden, on the embedded
model and list. The defaults of `harden` are chosen from this curve, then measured on another split.

Each point is an ordinary hardening in its own folder, so it resumes and its runs can be verified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.audit.flow import audit, stored_spec
from backtalk.errors import InputError
from backtalk.hardening.settings import defaults_left
from backtalk.hits import parse_criterion, rates
from backtalk.outcome import thresholds_of
from backtalk.report.progress import shown
from backtalk.specs.harden import Searching
from backtalk.specs.study import StudySpec
from backtalk.store import Run
from backtalk.studies.hardening_page import write_page
from backtalk.studies.hardenings import run_harden, told
from backtalk.studies.parts import Part, Result, Workplace, claim_folder
from backtalk.studies.telling import run_and_tell
from backtalk.terminal import make_console

BOUND = "20%"
"""On perplexity, along the curve: far enough to see where a method's costs lead."""
SPARED = {"avoid": "paper"}
"""With frequent-word avoiding, which is off but in the settings as published."""
CURVE: dict[str, dict[str, Any]] = {
    "published": {"settings": "switchboard"},
    "published-positives-4": {"settings": "switchboard", "positives": 4},
    "published-kl-10": {"settings": "switchboard", "kl": "10"},
    "likelihood-1": {"lambda_pos": "1", "kl": "0", **SPARED},
    "likelihood-0.1": {"lambda_pos": "0.1", "kl": "0", **SPARED},
    **{f"negative-kl-{kl}": {"kl": kl, **SPARED} for kl in ("30", "10", "3", "1")},
    **{f"negative-kl-{kl}-margin-3": {"kl": kl, "margin": "3", **SPARED} for kl in ("10", "3")},
    **{f"unspared-kl-{kl}": {"kl": kl, "avoid": "none"} for kl in ("30", "10", "5", "3")},
    **{f"npo-kl-{kl}": {"method": "npo", "kl": kl, **SPARED} for kl in ("10", "3", "1")},
    **{f"unlikelihood-kl-{kl}": {"method": "unlikelihood", "kl": kl, **SPARED} for kl in ("10", "3", "1")},
}
"""What each point of the curve sets over the defaults."""
CRITERION = "io-sample-avg-k1"
CONFIRMED_SEED = 2
"""Of the last hardening: other lists than those that the defaults were chosen on."""
MORE = 10
"""How many times as many restarts the last search has."""


@dataclass(frozen=True)
class Size:
    limit: int = 800
    """Targets: five eighths to train against, an eighth to choose with, a quarter held out."""
    iterations: int = 10
    """Of each point of the curve."""
    confirming: int = 20
    """Iterations of the last hardening."""
    search: tuple[tuple[str, int], ...] = ()
    """What its searches set over the defaults."""
    points: tuple[str, ...] = tuple(CURVE)


SIZES = {
    "paper": Size(),
    "small": Size(limit=96, iterations=4, confirming=6),
    "mini": Size(
        16,
        1,
        1,
        (("length", 3), ("top", 4), ("sweeps", 1), ("search_sweeps", 1), ("restarts", 1), ("measure", 40),
         ("rounds", 2)),
        ("published", "npo-kl-3"),
    ),
}  # fmt: skip


def run_study(spec: StudySpec) -> int:
    if spec.data != "embedded":
        raise InputError("this study hardens the embedded model on its own pairs: --data embedded")
    folder = Path(spec.out)
    claim_folder(folder)
    size = SIZES[spec.size]
    parts = hardening_parts(replace(size, limit=spec.limit or size.limit))
    return run_and_tell(parts, spec, "hardening", write_page)


def hardening_parts(size: Size) -> list[Part]:
    common: dict[str, Any] = {"limit": size.limit, "hit": CRITERION, **dict(size.search)}
    parts = []
    for name in size.points:
        point = {"iterations": size.iterations, "max_ppl_increase": BOUND, "seed": 1, **CURVE[name]}
        parts.append(_hardening(f"curve-{name}", {**common, **point}))
    settings = {**common, "iterations": size.confirming, "seed": CONFIRMED_SEED}
    parts.append(_hardening("default", settings))
    more = {"restarts": MORE * settings.get("restarts", Searching.restarts), "seed": CONFIRMED_SEED + 2}
    owns = ("runs/ten-times-before", "runs/ten-times-after")
    parts.append(Part("ten-times", ("default",), partial(search_longer, more=more), more, owns=owns))
    return parts


def _hardening(name: str, settings: dict[str, Any]) -> Part:
    """The defaults count as settings of what builds on them: with others there is another result."""
    counted = settings if "settings" in settings else settings | {"default": defaults_left(settings)}
    return Part(name, (), partial(harden_once, settings=settings), counted, owns=(f"hardenings/{name}",))


def harden_once(place: Workplace, settings: dict[str, Any]) -> Result:
    """One hardening, and what is drawn of it."""
    summary = run_harden(place, settings)
    proof = {key: summary[key] for key in ("held_out", "train")}
    return {**proof, "lists": summary["hardening"]["lists"], **told(summary)}


def search_longer(place: Workplace, more: dict[str, Any]) -> Result:
    """The held-out list again, both models, with as many more restarts and other seeds."""
    folder = place.folder / "hardenings" / "default"
    found: Result = {"restarts": more["restarts"]}
    for name in ("before", "after"):
        with Run.open(folder / name) as run:
            spec = stored_spec(run)
        search = replace(spec.search, restarts=more["restarts"])
        spec = replace(spec, search=search, seed=more["seed"], device=place.device)
        out = place.path("runs", f"ten-times-{name}")
        with shown(make_console(stderr=True)) as tell:
            audit(spec, str(out), progress=tell)
        criterion = parse_criterion(CRITERION)
        with Run.open(out) as run:
            by_any = rates(run.cases, run.findings(), [criterion], thresholds_of(run), "any")
        found[name] = by_any[CRITERION].as_dict()
    return found
