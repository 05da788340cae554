"""The page of a hardening's folder, from its summary.json: what changed, iteration by iteration, and what it
cost. The proof, sentence by sentence, is the comparison's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.report.cost import read_cost
from backtalk.report.page import App, page_environment, render
from backtalk.wording import count, percent

SETTINGS = ("against", "method", "targets", "iterations", "seed", "restarts", "sweeps", "max_ppl_increase")


@dataclass(frozen=True)
class Step:
    """One iteration as it was measured."""

    iteration: int
    hits: int
    n: int
    perplexity: float
    updates: int
    kept: bool
    broken: str = ""
    """What is wrong with how it talks."""


def render_hardening(
    summary: Mapping[str, Any], app: App | None = None, links: Sequence[tuple[str, str]] = ()
) -> str:
    """`links` are (label, address) of its comparisons and audits."""
    told = _mapping(summary.get("hardening"))
    frequent = "max_ratio" in summary
    return render(
        page_environment(),
        "hardening.html",
        app,
        model=str(summary.get("model", "a model")),
        headline=headline(summary),
        links=links,
        steps=_steps(told),
        measure="Most frequent reply" if frequent else "Selection targets hit",
        cost=read_cost(summary),
        facts=_facts(summary, told),
    )


def headline(summary: Mapping[str, Any]) -> str:
    """What changed, in a sentence or two; what can't be read is not said."""
    held_out = _mapping(summary.get("held_out"))
    try:
        if held_out:
            before, after = (_mapping(held_out[side]) for side in ("before", "after"))
            said = [
                f"Of {count(int(before['n']), 'sentence')} that it was not trained on, "
                f"{int(before['hits'])} could be drawn out before and {int(after['hits'])} after "
                f"({held_out['name']}): {int(held_out['fixed'])} fixed, {int(held_out['remaining'])} remain, "
                f"{int(held_out['new'])} new."
            ]
        elif ratios := summary.get("max_ratio"):
            said = [
                f"The most frequent reply is {percent(float(ratios[0]['rate']))} of all before and "
                f"{percent(float(ratios[1]['rate']))} after."
            ]
        else:
            said = ["No audit was asked for, so nothing is proven."]
        before_ppl, after_ppl = (float(value) for value in summary["cost"]["perplexity"])
        said.append(f"Perplexity {before_ppl:.1f} before, {after_ppl:.1f} after.")
    except (KeyError, TypeError, ValueError, IndexError):
        return "Its summary can't be read in full."
    if held_out:
        said.append("That this search finds none is no proof that there is none.")
    return " ".join(said)


def _steps(told: Mapping[str, Any]) -> list[Step]:
    try:
        return [
            Step(
                int(one["iterations"]),
                int(one["hits"]),
                int(one["n"]),
                float(one["perplexity"]),
                int(one.get("updates", 0)),
                one["iterations"] == told["iterations_kept"],
                str(one.get("broken", "")),
            )
            for one in told["candidates"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []


def _facts(summary: Mapping[str, Any], told: Mapping[str, Any]) -> list[tuple[str, str]]:
    spec = _mapping(summary.get("spec"))
    facts = [("Model", str(summary.get("model", ""))), ("Hardened model", str(summary.get("hardened", "")))]
    facts += [
        (name.replace("_", " ").capitalize(), str(spec[name]))
        for name in SETTINGS
        if spec.get(name) not in (None, "")
    ]
    if "iterations_kept" in told:
        facts.append(("Kept", f"iteration {told['iterations_kept']}"))
    return facts


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
