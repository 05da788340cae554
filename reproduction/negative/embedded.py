"""What may be shown and run anywhere: the embedded model against its own list, with 0, 1 and 4 paraphrases
of each training target, and against its own frequent replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backtalk.data.targets import read_targets
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.augment import words_of
from backtalk.registry import load_model
from reproduction.egregious.data import SEED
from reproduction.hardenings import run_harden, told
from reproduction.negative.sizes import Size
from reproduction.parts import Result, Workplace

COPIES = (0, 1, 4)
"""Paraphrases of each training target."""


def augment_settings(size: Size, copies: int) -> dict[str, Any]:
    over = {"augment": copies, "paraphraser": "rules"} if copies else {}
    return {**dict(size.embedded), "seed": SEED, **over}


def embedded_frequent_settings(size: Size) -> dict[str, Any]:
    return {"against": "frequent", **dict(size.embedded_frequent), "seed": SEED}


def harden_embedded(place: Workplace, settings: Mapping[str, Any], pairs: str) -> Result:
    """An ordinary hardening with its audits; and how many sentences of the widened training list the held-out
    list has too. `pairs` keep the model whole; its own where that is empty."""
    summary = run_harden(place, {**settings, "model": "chitchat", "data": pairs})
    model = load_model("chitchat", "cpu")
    assert isinstance(model, LocalModel)
    folder = place.path("hardenings", place.part)
    lists = {name: read_targets(folder / f"{name}.jsonl") for name in ("train", "held-out")}
    words = {name: {words_of(model, one.text) for one in own} for name, own in lists.items()}
    hardening = summary["hardening"]
    return {
        **told(summary),
        "held_out": summary["held_out"],
        "train": summary["train"],
        "lists": hardening["lists"],
        "augmentation": hardening["augmentation"],
        "overlap": len(words["train"] & words["held-out"]),
    }


def harden_embedded_frequent(place: Workplace, settings: Mapping[str, Any], pairs: str) -> Result:
    found = told(run_harden(place, {**settings, "model": "chitchat", "data": pairs}))
    return {"corpus": "embedded", **found}
