"""The page of a hardening's folder, from its summary.json: what changed, iteration by iteration, and what it
cost. The proof, sentence by sentence, is the comparison's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.report.cost import read_cost
from backtalk.report.page import App, page_environment, render
from backtalk.store.typed import read_part
from backtalk.wording import count, percent

SETTINGS = ("against", "method", "targets", "iterations", "seed", "restarts", "sweeps", "max_ppl_increase")


@dataclass(frozen=True)
class Step:
    """One iteration as it was measured."""

    iterations: int
    hits: int
    n: int
    perplexity: float
    updates: int = 0
    broken: str = ""
    """What is wrong with how it talks."""


@dataclass(frozen=True)
class Steps:
    candidates: list[Step]
    iterations_kept: int


@dataclass(frozen=True)
class Hits:
    hits: int
    n: int


@dataclass(frozen=True)
class HeldOut:
    """The audits of the held-out list, before and after."""

    name: str
    before: Hits
    after: Hits
    fixed: int
    remaining: int
    new: int


@dataclass(frozen=True)
class Ratio:
    """The share of the most frequent reply."""

    rate: float


@dataclass(frozen=True)
class Cost:
    perplexity: tuple[float, float]


@dataclass(frozen=True)
class Changed:
    """What a headline says."""

    cost: Cost
    held_out: HeldOut | None = None
    max_ratio: tuple[Ratio, Ratio] | None = None


def render_hardening(
    summary: Mapping[str, Any], app: App | None = None, links: Sequence[tuple[str, str]] = ()
) -> str:
    """`links` are (label, address) of its comparisons and audits."""
    told = read_part(Steps, summary.get("hardening"))
    frequent = "max_ratio" in summary
    return render(
        page_environment(),
        "hardening.html",
        app,
        model=str(summary.get("model", "a model")),
        headline=headline(summary),
        links=links,
        steps=told.candidates if told else [],
        kept=told.iterations_kept if told else None,
        measure="Most frequent reply" if frequent else "Selection targets hit",
        cost=read_cost(summary),
        facts=_facts(summary, told),
    )


def headline(summary: Mapping[str, Any]) -> str:
    """What changed, in a sentence or two; what can't be read is not said."""
    changed = read_part(Changed, summary)
    if changed is None:
        return "Its summary can't be read in full."
    said, test = [], changed.held_out
    if test:
        said.append(
            f"Of {count(test.before.n, 'sentence')} that it was not trained on, "
            f"{test.before.hits} could be drawn out before and {test.after.hits} after "
            f"({test.name}): {test.fixed} fixed, {test.remaining} remain, {test.new} new."
        )
    elif changed.max_ratio:
        before, after = (percent(one.rate) for one in changed.max_ratio)
        said.append(f"The most frequent reply is {before} of all before and {after} after.")
    else:
        said.append("No audit was asked for, so nothing is proven.")
    said.append("Perplexity {:.1f} before, {:.1f} after.".format(*changed.cost.perplexity))
    if test:
        said.append("That this search finds none is no proof that there is none.")
    return " ".join(said)


def _facts(summary: Mapping[str, Any], told: Steps | None) -> list[tuple[str, str]]:
    spec = summary.get("spec")
    settings = dict(spec) if isinstance(spec, dict) else {}
    for part in [own for own in settings.values() if isinstance(own, dict)]:
        settings |= {"method": part["name"]} if "name" in part else part
    facts = [("Model", str(summary.get("model", ""))), ("Hardened model", str(summary.get("hardened", "")))]
    facts += [
        (name.replace("_", " ").capitalize(), str(settings[name]))
        for name in SETTINGS
        if settings.get(name) not in (None, "")
    ]
    if told:
        facts.append(("Kept", f"iteration {told.iterations_kept}"))
    return facts
