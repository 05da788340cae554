"""How to train, from the flags of `harden`: settings by name, and what is set over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backtalk.errors import InputError, unknown
from backtalk.models.local import LocalModel
from backtalk.spec import HardenSpec
from backtalk.training.avoid import PAPER_AVOID, avoid_ids, frequent_ids
from backtalk.training.negative import PAPER_SETTINGS, NegativeConfig

DEFAULT: dict[str, Any] = {"positives": 4}
"""What the settings `default` change of NegativeConfig's own values, which are the paper's for Switchboard.
With one positive update the bound on perplexity is met before half of the hits are gone (LOG.md)."""


def config_of(spec: HardenSpec, model: LocalModel, goals: Sequence[Sequence[int]]) -> NegativeConfig:
    """`goals` are the training targets' ids."""
    given: dict[str, Any] = {
        "method": spec.method,
        "iterations": spec.iterations,
        "batch": spec.batch,
        "rounds": spec.rounds,
        "npo_beta": spec.npo_beta,
        "avoid": avoided(spec.avoid, model, goals),
        "seed": spec.seed,
        "checkpoint_s": spec.checkpoint_s,
    }
    for name in ("lr", "positives"):
        if value := getattr(spec, name):
            given[name] = value
    for name in ("lambda_pos", "kl"):
        if text := getattr(spec, name):
            given[name] = weight(text, name)
    return replace(NegativeConfig(), **{**by_name(spec.settings), **given})


def by_name(name: str) -> dict[str, Any]:
    if name == "default":
        return dict(DEFAULT)
    paper = name.removeprefix("paper-")
    if paper not in PAPER_SETTINGS:
        raise unknown("settings", name, ["default", *PAPER_SETTINGS])
    return dict(PAPER_SETTINGS[paper])


def avoided(which: str, model: LocalModel, goals: Sequence[Sequence[int]]) -> frozenset[int]:
    """Frequent-word avoiding: the ids without negative updates."""
    if which == "none":
        return frozenset()
    if which == "frequent":
        return frequent_ids(goals, len(PAPER_AVOID))
    return avoid_ids(PAPER_AVOID, model.vocabulary)


def weight(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"--{name.replace('_', '-')} should be a number from 0 on, not {text!r}")
    return value


def rise(text: str) -> float:
    """0.05 of "5%" or "0.05": how much perplexity may rise."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"--max-ppl-increase should read like 5% or 0.05, not {text!r}")
    return value
