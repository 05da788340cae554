"""`python -m reproduction hardening`: held-out hit rate against perplexity for every way to harden, on the
embedded model and list. The defaults of `harden` are chosen from this curve, then measured on another split.

Each point is an ordinary hardening in its own folder, so it resumes and its runs can be verified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hardening.settings import defaults_left
from backtalk.specs.harden import HardenSpec, Sentences
from reproduction.hardening.page import write_page
from reproduction.hardenings import run_harden, told
from reproduction.parts import Part, Result, Workplace, claim_folder
from reproduction.spec import StudySpec
from reproduction.telling import run_and_tell

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
DEFAULTS = {"default": 2, "default-seed-1": 1}
"""The parts that harden with the defaults, whose search and KL weight adapt, and the seeds of their lists.
Settings were first chosen on the lists of seed 1."""


@dataclass(frozen=True)
class Size:
    limit: int = 800
    """Targets: five eighths to train against, an eighth to choose with, a quarter held out."""
    iterations: int = 10
    """Of each point of the curve."""
    confirming: int = 20
    """Iterations of those with the defaults."""
    search: tuple[tuple[str, int], ...] = ()
    """What the searches of all of them set over the defaults."""
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
    for name, seed in DEFAULTS.items():
        parts.append(_hardening(name, {**common, "iterations": size.confirming, "seed": seed}))
    return parts


def _hardening(name: str, settings: dict[str, Any]) -> Part:
    """The defaults count as settings of what builds on them: with others there is another result."""
    left = defaults_left(settings)
    if name in DEFAULTS:
        left |= {"escalate": Sentences.escalate, "max_ppl_increase": HardenSpec.max_ppl_increase}
    counted = settings if "settings" in settings else settings | {"default": left}
    return Part(name, (), partial(harden_once, settings=settings), counted, owns=(f"hardenings/{name}",))


def harden_once(place: Workplace, settings: dict[str, Any]) -> Result:
    """One hardening, and what is drawn of it."""
    summary = run_harden(place, {"model": "chitchat", **settings}, adapts=place.part in DEFAULTS)
    proof = {key: summary[key] for key in ("held_out", "train", "proof")}
    return {**proof, "lists": summary["hardening"]["lists"], **told(summary)}
